// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "weft/export.h"
#include "weft/module.h"
#include "weft/ops/margin_losses.h"

namespace weft {

/// A loss as a module: {input, target} -> {loss}. The classes below have the names of torch.nn and
/// compute the functions of ops/losses.h and ops/networks.h.
class WEFT_API LossModule : public Module {
 public:
  using Function = std::function<Tensor(const Tensor& input, const Tensor& target)>;
  LossModule(std::string name, Function function)
      : name_(std::move(name)), function_(std::move(function)) {}
  /// Calls the module.
  Tensor operator()(const Tensor& input, const Tensor& target) {
    return Module::operator()(Tensors{input, target})[0];
  }

 protected:
  /// std::invalid_argument for another number of inputs than two.
  Tensors forward(const Tensors& inputs) override;

 private:
  std::string name_;
  Function function_;
};

/// The options of cross_entropy, of logits [..., classes] and classes [...] or probabilities, or as
/// in PyTorch of [rows, classes, ...] and [rows, ...].
struct CrossEntropyLoss : LossModule {
  explicit CrossEntropyLoss(CrossEntropyOptions options = {})
      : LossModule("cross_entropy_loss",
                   [o = std::move(options)](const Tensor& x, const Tensor& t) {
                     return cross_entropy_of_classes(x, t, o);
                   }) {}
};
struct NLLLoss : LossModule {
  explicit NLLLoss(Tensor weight = {}, int64_t ignore_index = kIgnoredTarget,
                   std::string reduction = "mean")
      : LossModule("nll_loss", [=](const Tensor& x, const Tensor& t) {
          return nll_loss(x, t, weight, ignore_index, reduction);
        }) {}
};
struct MSELoss : LossModule {
  explicit MSELoss(std::string reduction = "mean")
      : LossModule("mse_loss",
                   [=](const Tensor& x, const Tensor& t) { return mse_loss(x, t, reduction); }) {}
};
struct L1Loss : LossModule {
  explicit L1Loss(std::string reduction = "mean")
      : LossModule("l1_loss",
                   [=](const Tensor& x, const Tensor& t) { return l1_loss(x, t, reduction); }) {}
};
struct SmoothL1Loss : LossModule {
  explicit SmoothL1Loss(std::string reduction = "mean", double beta = 1)
      : LossModule("smooth_l1_loss", [=](const Tensor& x, const Tensor& t) {
          return smooth_l1_loss(x, t, reduction, beta);
        }) {}
};
struct HuberLoss : LossModule {
  explicit HuberLoss(std::string reduction = "mean", double delta = 1)
      : LossModule("huber_loss", [=](const Tensor& x, const Tensor& t) {
          return huber_loss(x, t, reduction, delta);
        }) {}
};
struct BCELoss : LossModule {
  explicit BCELoss(Tensor weight = {}, std::string reduction = "mean")
      : LossModule("bce_loss", [=](const Tensor& x, const Tensor& t) {
          return binary_cross_entropy(x, t, weight, reduction);
        }) {}
};
struct BCEWithLogitsLoss : LossModule {
  explicit BCEWithLogitsLoss(Tensor weight = {}, std::string reduction = "mean",
                             Tensor pos_weight = {})
      : LossModule("bce_with_logits_loss", [=](const Tensor& x, const Tensor& t) {
          return binary_cross_entropy_with_logits(x, t, weight, reduction, pos_weight);
        }) {}
};
struct KLDivLoss : LossModule {
  explicit KLDivLoss(std::string reduction = "mean", bool log_target = false)
      : LossModule("kl_div_loss", [=](const Tensor& x, const Tensor& t) {
          return kl_div(x, t, reduction, log_target);
        }) {}
};

}  // namespace weft
