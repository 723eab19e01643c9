// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/module.h"
#include "weft/ops/updates.h"

namespace weft {

struct ParameterRuns;

/// Updates the parameters of a module from their gradients. It holds the Parameter slots, so their
/// tensors may be loaded or gathered between steps, and sharded before the first one. Parameters
/// whose local values, gradients and state are adjacent in memory are updated by one call.
class WEFT_API Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer();

  /// Performs one update with the gradients times `gradient_scale` (one element, f32; empty means
  /// 1). Parameters without a gradient are unchanged. std::invalid_argument when no parameter has
  /// one, or a gradient has another layout than its parameter. A step that a Graph records runs at
  /// each replay, with the current learning rate (SGD throws if it has changed).
  void step(const Tensor& gradient_scale = {});
  void zero_grad();

  double learning_rate() const { return learning_rate_; }
  void set_learning_rate(double learning_rate) { learning_rate_ = learning_rate; }

  /// The trainable parameters among those given.
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  /// State of a parameter, in the parameter's layout: tensors named by `moments()`. Made, as zeros,
  /// by the first call or step; change it in place only.
  const Tensors& state(size_t parameter);
  virtual std::vector<std::string> moments() const = 0;
  /// Number of updates that a parameter has had.
  int64_t steps(size_t parameter) const { return steps_[parameter]; }
  void set_steps(size_t parameter, int64_t steps);

 protected:
  Optimizer(std::vector<NamedParameter> parameters, double learning_rate);

  /// The update of one run of adjacent parameters, as flat local tensors.
  struct Update {
    Tensor value;
    Tensor gradient;
    Tensors state;
    Tensor gradient_scale;
    /// Index of a parameter of the run: all have equal `steps` and `kind_of`.
    size_t parameter;
    /// Number of this update, counted from 1.
    int64_t step;
    /// Set when a graph records the update: the result of `rates`, f64, to be read when the kernel
    /// runs.
    Tensor rates = {};
  };
  virtual void update(const Update& update) = 0;
  /// Performs all updates of one step; a rank may have none.
  virtual void update_all(std::span<const Update> updates);
  /// Only parameters of the same kind are updated by one call.
  virtual int kind_of(size_t parameter) const = 0;
  /// Dtype of the state, except that of f64 parameters, which is f64.
  virtual DType moment_dtype() const { return f32; }
  /// Returns the numbers that differ from one update of a parameter to the next, for updates that a
  /// Graph records and replays; {} when only the learning rate can change. The default throws
  /// std::invalid_argument: steps of such an optimizer cannot be recorded.
  virtual std::vector<double> rates(size_t parameter, int64_t step) const;
  /// Keeps the state in pinned host memory.
  virtual bool offloads() const { return false; }

 private:
  void make_state();
  void find_runs(const std::vector<size_t>& with_gradient);
  Update update_of_run(size_t run, const Tensor& gradient_scale);
  void count(const std::vector<size_t>& updated);
  void record(std::vector<Update>& updates, const std::vector<size_t>& updated);
  void fill_rates(const Tensor& all, const std::vector<std::vector<size_t>>& runs) const;
  Device device_of(const Update& update) const;
  void update_by_parts(Device device, const Update& update);

  std::vector<NamedParameter> parameters_;
  double learning_rate_;
  std::vector<int64_t> steps_;
  std::vector<Tensors> state_;
  std::unique_ptr<ParameterRuns> runs_;
};

/// Returns whether weight decay applies to a parameter.
using DecayPredicate = std::function<bool(const NamedParameter&)>;

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  /// All parameters unless given.
  DecayPredicate decays = {};
  /// Dtype of m and v. bf16 halves their memory; v then decays only while 1 - beta2 is above 2^-9.
  DType moments = f32;
  /// Keeps the state in pinned host memory; each step passes it through the GPU.
  bool offload = false;
};

/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019): `adamw_`. State: "m", "v".
class WEFT_API AdamW final : public Optimizer {
 public:
  explicit AdamW(std::vector<NamedParameter> parameters, AdamWOptions options = {});
  std::vector<std::string> moments() const override { return {"m", "v"}; }

 protected:
  void update(const Update& update) override;
  int kind_of(size_t parameter) const override { return decays_[parameter]; }
  DType moment_dtype() const override { return options_.moments; }
  std::vector<double> rates(size_t parameter, int64_t step) const override;
  bool offloads() const override { return options_.offload; }

 private:
  AdamWStep numbers_of(size_t parameter, int64_t step) const;

  AdamWOptions options_;
  std::vector<bool> decays_;
};

struct SGDOptions {
  double learning_rate = 1e-2;
  double momentum = 0;
  double weight_decay = 0;
  /// All parameters unless given.
  DecayPredicate decays = {};
  /// See AdamWOptions::offload.
  bool offload = false;
};

/// Stochastic gradient descent: `sgd_`. State: "velocity", only with momentum.
class WEFT_API SGD final : public Optimizer {
 public:
  explicit SGD(std::vector<NamedParameter> parameters, SGDOptions options = {});
  std::vector<std::string> moments() const override;

 protected:
  void update(const Update& update) override;
  int kind_of(size_t parameter) const override { return decays_[parameter]; }
  std::vector<double> rates(size_t, int64_t) const override { return {}; }
  bool offloads() const override { return options_.offload; }

 private:
  SGDOptions options_;
  std::vector<bool> decays_;
};

struct LambOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0.01;
  /// All parameters unless given.
  DecayPredicate decays = {};
};

/// Layer-wise adapted Adam (You et al., 2020): with u = m / (1 - beta1^step) / (sqrt(v / (1 -
/// beta2^step)) + eps) + weight_decay p of a whole parameter p, p -= lr |p| / |u| u (lr u where one
/// of the norms is 0). One all-reduce computes the norms of all parameters; all ranks of their
/// meshes must take part. A step needs extra memory of the size of the gradients. State: "m", "v".
class WEFT_API Lamb final : public Optimizer {
 public:
  explicit Lamb(std::vector<NamedParameter> parameters, LambOptions options = {});
  std::vector<std::string> moments() const override { return {"m", "v"}; }

 protected:
  void update(const Update& update) override;
  void update_all(std::span<const Update> updates) override;
  /// Each parameter has its own norms and needs its own update.
  int kind_of(size_t parameter) const override { return static_cast<int>(parameter); }

 private:
  Tensor direction(const Update& update) const;

  LambOptions options_;
  std::vector<bool> decays_;
};

/// Norm of all gradients together, whatever their layouts and meshes: one element, f32 (f64 on
/// ranks with an f64 gradient), without a sharding, equal on each rank. Runs one all-reduce over
/// the ranks of the largest mesh, which must include those of the other meshes.
WEFT_API Tensor gradient_norm(const std::vector<ParameterPtr>& parameters);
/// Returns min(1, max_norm / (norm + 1e-6)), to be passed to `Optimizer::step`, so that clipping
/// takes no extra pass over the gradients.
WEFT_API Tensor clip_scale(const Tensor& norm, double max_norm);
/// Scales all gradients so that their norm is at most `max_norm`; returns the norm before that.
WEFT_API double clip_grad_norm(const std::vector<ParameterPtr>& parameters, double max_norm);

}  // namespace weft
