// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/adam.h"
#include "weft/grouped_optimizer.h"
#include "weft/ops/in_place.h"

namespace weft {

struct WEFT_API SGDOptions {
  double learning_rate = 1e-2;
  double momentum = 0;
  double weight_decay = 0;
  /// Steps along the gradient plus momentum times the new velocity (Sutskever et al., 2013).
  bool nesterov = false;
  /// See AdamWOptions.
  DecayPredicate decays = {};
  Tier offload = {};
};

/// Stochastic gradient descent: `sgd_`. State: "velocity", only with momentum.
class WEFT_API SGD final : public GroupedOptimizer<SGD, SGDOptions> {
 public:
  using GroupedOptimizer::GroupedOptimizer;
  std::string_view name() const override { return "sgd"; }
  std::vector<std::string> moments() const override;

 protected:
  void update(const Update& update) override;
  std::vector<double> rates(size_t, int64_t) const override { return {}; }
};

struct WEFT_API LionOptions {
  double learning_rate = 1e-4;
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;
  /// See AdamWOptions.
  DecayPredicate decays = {};
  DType moments = f32;
  Tier offload = {};
};

/// Evolved sign momentum (Chen et al., 2023): `lion_`. Its rates are 3 to 10 times smaller than
/// those of AdamW, and its weight decay is larger by as much. State: "m".
class WEFT_API Lion final : public GroupedOptimizer<Lion, LionOptions> {
 public:
  using GroupedOptimizer::GroupedOptimizer;
  std::string_view name() const override { return "lion"; }
  std::vector<std::string> moments() const override { return {"m"}; }

 protected:
  void update(const Update& update) override;
  DType moment_dtype() const override { return options_[0].moments; }
  std::vector<double> rates(size_t, int64_t) const override { return {}; }
};

/// All numbers among the options, "lr" first.
WEFT_API std::vector<Hyperparameter> hyperparameters(LionOptions& options);
WEFT_API std::vector<Hyperparameter> hyperparameters(SGDOptions& options);

/// A learning rate by step, counted from 0: it rises linearly and reaches `peak` after `warmup`
/// steps, then falls along half a cosine to `floor` at step `total`, and stays there.
struct WEFT_API WarmupCosine {
  double peak = 1e-3;
  int64_t warmup = 0;
  int64_t total = 1;
  double floor = 0;

  /// std::invalid_argument for a negative step or a warm-up longer than `total`.
  double operator()(int64_t step) const;
  bool operator==(const WarmupCosine&) const = default;
};

/// Bytes of the buffers through which `Optimizer::step` passes arrays that rest on disk: each array
/// of an update has elements of so many bytes, or 0 in memory, and at most `elements` of them.
WEFT_API int64_t update_buffer_bytes(const std::vector<int64_t>& element_bytes, int64_t elements);

/// Norm of all elements of the tensors together, whatever their layouts and meshes, of order
/// `norm_type`, which may be infinity: one element, f32 (f64 on ranks with an f64 tensor), without
/// a sharding, equal on each rank. Runs one all-reduce over the ranks of the largest mesh, which
/// must include those of the other meshes. std::invalid_argument unless `norm_type` is above 0.
WEFT_API Tensor total_norm(const Tensors& tensors, double norm_type = 2);
/// That of the gradients, one of which must exist.
WEFT_API Tensor gradient_norm(const std::vector<ParameterPtr>& parameters, double norm_type = 2);
/// Returns min(1, max_norm / (norm + 1e-6)), to be passed to `Optimizer::step`, so that clipping
/// takes no extra pass over the gradients.
WEFT_API Tensor clip_scale(const Tensor& norm, double max_norm);
/// Scales all gradients so that their norm, which is `norm`, is at most `max_norm`.
WEFT_API void clip_grads_with_norm(const std::vector<ParameterPtr>& parameters, double max_norm,
                                   const Tensor& norm);
/// The same with their norm, which it returns.
WEFT_API double clip_grad_norm(const std::vector<ParameterPtr>& parameters, double max_norm,
                               double norm_type = 2);
/// Limits every element of the gradients to [-clip_value, clip_value]. No traffic.
WEFT_API void clip_grad_value(const std::vector<ParameterPtr>& parameters, double clip_value);

}  // namespace weft
