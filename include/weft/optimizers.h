// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/ops/in_place.h"
#include "weft/optimizer.h"

namespace weft {

struct ParameterState;

/// Returns whether weight decay applies to a parameter.
using DecayPredicate = std::function<bool(const NamedParameter&)>;

/// The base of the built-in optimizers, whose groups have options of one type.
template <class Self, class Options> class WEFT_API GroupedOptimizer : public Optimizer {
 public:
  explicit GroupedOptimizer(std::vector<NamedParameter> parameters, Options options = {})
      : GroupedOptimizer({ParameterGroup<Options>{std::move(parameters), options}}, options) {}
  /// `offload`, and `moments` of AdamW, must be equal in all groups. `defaults` are kept for groups
  /// that are added.
  explicit GroupedOptimizer(std::vector<ParameterGroup<Options>> groups, Options defaults = {});
  const Options& defaults() const { return defaults_; }
  /// Adds a group whose parameters have had no update, also between steps. std::invalid_argument,
  /// before anything is changed, for options that do not fit and parameters that it has already.
  void add_group(ParameterGroup<Options> group);
  std::unique_ptr<Optimizer> copy_for(const std::vector<ParameterPtr>& parameters) override {
    return copied(static_cast<const Self&>(*this), parameters);
  }

 protected:
  std::vector<Hyperparameter> numbers(size_t group) override;
  int kind_of(size_t parameter) const override { return decays_[parameter]; }
  Tier offload() const override {
    if constexpr (requires { options_[0].offload; }) return options_[0].offload;
    return {};
  }

  GroupedOptimizer(const GroupedOptimizer& other, const std::vector<ParameterPtr>& parameters)
      : Optimizer(other, parameters),
        options_(other.options_),
        defaults_(other.defaults_),
        decays_(other.decays_) {}

  std::vector<Options> options_;
  Options defaults_;
  /// Whether weight decay applies, by parameter.
  std::vector<bool> decays_;

 private:
  friend class Optimizer;
};

struct WEFT_API AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  /// All parameters unless given.
  DecayPredicate decays = {};
  /// Dtype of m and v. bf16 halves their memory; v then decays only while 1 - beta2 is above 2^-9.
  DType moments = f32;
  /// The memory of the state: with the parameters, in pinned host memory (`true`: each step passes
  /// it through the GPU), or on disk (`Tier::disk`: each step passes it through bounded buffers).
  Tier offload = {};
};

/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019): `adamw_`. State: "m", "v".
class WEFT_API AdamW final : public GroupedOptimizer<AdamW, AdamWOptions> {
 public:
  using GroupedOptimizer::GroupedOptimizer;
  std::vector<std::string> moments() const override { return {"m", "v"}; }

 protected:
  void update(const Update& update) override;
  DType moment_dtype() const override { return options_[0].moments; }
  std::vector<double> rates(size_t parameter, int64_t step) const override;

 private:
  AdamWStep numbers_of(size_t parameter, int64_t step) const;
};

struct WEFT_API SGDOptions {
  double learning_rate = 1e-2;
  double momentum = 0;
  double weight_decay = 0;
  /// Steps along the gradient plus momentum times the new velocity (Sutskever et al., 2013).
  bool nesterov = false;
  /// All parameters unless given.
  DecayPredicate decays = {};
  /// See AdamWOptions::offload.
  Tier offload = {};
};

/// Stochastic gradient descent: `sgd_`. State: "velocity", only with momentum.
class WEFT_API SGD final : public GroupedOptimizer<SGD, SGDOptions> {
 public:
  using GroupedOptimizer::GroupedOptimizer;
  std::vector<std::string> moments() const override;

 protected:
  void update(const Update& update) override;
  std::vector<double> rates(size_t, int64_t) const override { return {}; }
};

struct WEFT_API LambOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0.01;
  /// All parameters unless given.
  DecayPredicate decays = {};
  /// See AdamWOptions::offload. The directions of a step rest on disk if the state does, else where
  /// the parameter is used.
  Tier offload = {};
};

/// Layer-wise adapted Adam (You et al., 2020): with u = m / (1 - beta1^step) / (sqrt(v / (1 -
/// beta2^step)) + eps) + weight_decay p of a whole parameter p, p -= lr |p| / |u| u (lr u where one
/// of the norms is 0). One all-reduce computes the norms of all parameters; all ranks of their
/// meshes must take part. A step needs extra memory for the directions u, in f32 (f64 for f64
/// parameters). State: "m", "v".
class WEFT_API Lamb final : public GroupedOptimizer<Lamb, LambOptions> {
 public:
  using GroupedOptimizer::GroupedOptimizer;
  std::vector<std::string> moments() const override { return {"m", "v"}; }

 protected:
  void update(const Update& update) override;
  void update_all(std::span<const Update> updates) override;
  /// Each parameter has its own norms and needs its own update.
  int kind_of(size_t parameter) const override { return static_cast<int>(parameter); }

 private:
  Tensor new_direction(const Update& update);
  void add_squares(const Update& part, const Tensor& squares) const;

  /// The directions of a step, if the state rests on disk.
  std::shared_ptr<ParameterState> directions_;
};

/// All numbers among the options, "lr" first.
WEFT_API std::vector<Hyperparameter> hyperparameters(AdamWOptions& options);
WEFT_API std::vector<Hyperparameter> hyperparameters(SGDOptions& options);
WEFT_API std::vector<Hyperparameter> hyperparameters(LambOptions& options);

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
