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

/// Changes the parameters of a module by their gradients. It holds their slots, so parameters may
/// be sharded, gathered or loaded meanwhile. Parameters whose local values, gradients and state
/// each lie one after the other in memory are updated by one call over all of it.
class WEFT_API Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer();

  /// One update by the gradients times the one element of `gradient_scale` (f32; none means 1).
  /// Parameters without a gradient stay; std::invalid_argument when none has one, or one lies
  /// differently than its parameter. One that a Graph records is an update each time it is played,
  /// with the learning rate of then.
  void step(const Tensor& gradient_scale = {});
  void zero_grad();

  double learning_rate() const { return learning_rate_; }
  void set_learning_rate(double learning_rate) { learning_rate_ = learning_rate; }

  /// The trainable ones it was given.
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  /// What it remembers of a parameter, in the parameter's layout: `moments()` tensors by their
  /// names. Made, zero, at the first call or step; change them in place only.
  const Tensors& state(size_t parameter);
  virtual std::vector<std::string> moments() const = 0;
  /// How many updates a parameter has had.
  int64_t steps(size_t parameter) const { return steps_[parameter]; }
  void set_steps(size_t parameter, int64_t steps);

 protected:
  Optimizer(std::vector<NamedParameter> parameters, double learning_rate);

  /// One run of memory: flat tensors of one rank.
  struct Update {
    Tensor value;
    Tensor gradient;
    Tensors state;
    Tensor gradient_scale;
    /// A parameter of the run: all have equal `steps` and `kind_of`.
    size_t parameter;
    /// Of this update, from 1.
    int64_t step;
    /// Where a graph records it: what `rates` gave, f64, to be read when the update is done.
    Tensor rates = {};
  };
  virtual void update(const Update& update) = 0;
  /// All updates of one step; a rank may have none.
  virtual void update_all(std::span<const Update> updates);
  /// Parameters of different kinds are not updated by one call.
  virtual int kind_of(size_t parameter) const = 0;
  /// Of the state of parameters that are not f64 (whose state is f64).
  virtual DType moment_dtype() const { return f32; }
  /// What differs from one update of a parameter to the next, for updates that a Graph records and
  /// plays; {}: nothing does while the learning rate stays. Unless overridden
  /// std::invalid_argument: its steps are not to be recorded.
  virtual std::vector<double> rates(size_t parameter, int64_t step) const;
  /// The state rests in pinned memory of the host.
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

/// Which parameters decay.
using DecayPredicate = std::function<bool(const NamedParameter&)>;

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  /// All unless given.
  DecayPredicate decays = {};
  /// Of m and v. bf16 halves their memory; v then decays only while 1 - beta2 is above 2^-9.
  DType moments = f32;
  /// The state rests in pinned memory of the host, and passes through the GPU in a step.
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
  /// All unless given.
  DecayPredicate decays = {};
  /// As AdamWOptions::offload.
  bool offload = false;
};

/// Gradient descent: `sgd_`. State: "velocity", where there is momentum.
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
  /// All unless given.
  DecayPredicate decays = {};
};

/// Layer-wise adapted Adam (You et al., 2020): with u = m / (1 - beta1^step) / (sqrt(v / (1 -
/// beta2^step)) + eps) + weight_decay p of a whole parameter p, p -= lr |p| / |u| u (lr u where one
/// of the norms is 0). One all-reduce gives the norms of all parameters, which all ranks of their
/// meshes call. A step takes memory of a gradient more. State: "m", "v".
class WEFT_API Lamb final : public Optimizer {
 public:
  explicit Lamb(std::vector<NamedParameter> parameters, LambOptions options = {});
  std::vector<std::string> moments() const override { return {"m", "v"}; }

 protected:
  void update(const Update& update) override;
  void update_all(std::span<const Update> updates) override;
  /// Each has its own norms.
  int kind_of(size_t parameter) const override { return static_cast<int>(parameter); }

 private:
  Tensor direction(const Update& update) const;

  LambOptions options_;
  std::vector<bool> decays_;
};

/// sqrt of the sum of squares of all gradients, whatever their layouts and meshes: one element, f32
/// (f64 on ranks where a gradient is), without a sharding, equal on each rank. One all-reduce; the
/// ranks of the largest mesh take part, which must be, or have among them, those of the others.
WEFT_API Tensor gradient_norm(const std::vector<ParameterPtr>& parameters);
/// min(1, max_norm / (norm + 1e-6)): what `Optimizer::step` takes, so that clipping is no pass over
/// the gradients.
WEFT_API Tensor clip_scale(const Tensor& norm, double max_norm);
/// Scales all gradients so that their norm is at most `max_norm`; gives the norm before.
WEFT_API double clip_grad_norm(const std::vector<ParameterPtr>& parameters, double max_norm);

}  // namespace weft
