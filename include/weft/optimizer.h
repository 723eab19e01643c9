// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "weft/export.h"
#include "weft/module.h"
#include "weft/tier.h"

namespace weft {

struct ParameterRuns;
struct ParameterState;

/// Parameters of an optimizer that share one set of options.
template <class Options> struct ParameterGroup {
  std::vector<NamedParameter> parameters;
  Options options = {};
};

/// A number or flag that the steps of one group of parameters use, such as "weight_decay".
struct Hyperparameter {
  std::string_view name;
  std::variant<double*, bool*> value;
  double get() const {
    return std::visit([](const auto* at) { return static_cast<double>(*at); }, value);
  }
  /// A flag is set by any number but 0.
  void set(double to) const {
    std::visit([to](auto* at) { *at = static_cast<std::remove_pointer_t<decltype(at)>>(to); },
               value);
  }
};

/// Updates the parameters of a module from their gradients. It holds the Parameter slots, so their
/// tensors may be loaded or gathered between steps, and sharded before the first one. Parameters
/// whose local values, gradients and state are adjacent in memory are updated by one call.
class WEFT_API Optimizer : NotCopied {
 public:
  virtual ~Optimizer();

  /// Performs one update with the gradients times `gradient_scale` (one element, f32; empty means
  /// 1). Parameters without a gradient are unchanged. std::invalid_argument when no parameter has
  /// one, or a gradient has another layout than its parameter. A step that a Graph records runs at
  /// each replay, with the current learning rate (SGD throws if it has changed).
  void step(const Tensor& gradient_scale = {});
  void zero_grad();

  /// Groups of parameters, numbered from 0 in the order in which they were given.
  size_t groups() const { return learning_rates_.size(); }
  size_t group_of(size_t parameter) const { return group_of_[parameter]; }
  /// The numbers and flags of a group, the first of which is the learning rate, "lr", and its
  /// notes. Setting one changes the next steps.
  std::vector<Hyperparameter> hyperparameters(size_t group);
  /// The numbers that schedules keep with a group. Steps do not use them; checkpoints contain them.
  static const std::vector<std::string>& note_names();
  /// Sets a hyperparameter by name, or a note that the group may lack. std::invalid_argument for
  /// another name.
  void set(size_t group, std::string_view name, double value);
  double learning_rate(size_t group = 0) const;
  /// Sets that of all groups, or of one.
  void set_learning_rate(double learning_rate);
  void set_learning_rate(size_t group, double learning_rate);

  /// Returns a copy, with its own state, that updates `parameters` instead: one for each of its
  /// own, of equal shape and layout. std::invalid_argument for an optimizer that cannot be copied.
  virtual std::unique_ptr<Optimizer> copy_for(const std::vector<ParameterPtr>& parameters);

  /// The name by which `optimizer_named` makes it; empty for a custom one.
  virtual std::string_view name() const { return {}; }
  /// Returns whether weight decay applies to a parameter.
  virtual bool decays(size_t) const { return true; }
  /// Bytes of this rank's part of the state, whose parameters need no memory.
  int64_t state_bytes() const;

  /// The trainable parameters among those given.
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  /// State of a parameter, in the parameter's layout unless its class states another: tensors named
  /// by `moments()`, or by the first of them. Made, as zeros, by the first call or step; change it
  /// in place only.
  const Tensors& state(size_t parameter);
  virtual std::vector<std::string> moments() const = 0;
  /// Number of updates that a parameter has had.
  int64_t steps(size_t parameter) const { return steps_[parameter]; }
  void set_steps(size_t parameter, int64_t steps);

 protected:
  /// Takes a learning rate for each group.
  Optimizer(std::vector<std::vector<NamedParameter>> groups, std::vector<double> learning_rates);
  /// Adds a group, whose parameters have had no update; nothing is added when one is given already.
  void add(std::vector<NamedParameter> group, double learning_rate);
  /// Called by `copy_for`, which calls `copy_state` when the copy is complete.
  Optimizer(const Optimizer& other, const std::vector<ParameterPtr>& parameters);
  void copy_state(const Optimizer& other);
  template <class O>
  static std::unique_ptr<O> copied(const O& other, const std::vector<ParameterPtr>& parameters) {
    std::unique_ptr<O> copy(new O(other, parameters));
    copy->copy_state(other);
    return copy;
  }

  /// The update of one run of adjacent parameters, as flat local tensors.
  struct Update {
    Tensor value;
    Tensor gradient;
    Tensors state;
    Tensor gradient_scale;
    /// Index of a parameter of the run: all are of one group, with equal `steps` and `kind_of`.
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
  /// Calls `work` with the updates, in parts where arrays rest on the host of a GPU or on disk:
  /// whole multiples of `kPart` elements, but for the last one, in memory that one device reaches.
  /// `work` may change the state, and the value if `changes_value`.
  using PartWork = std::function<void(const Update& part)>;
  static constexpr int64_t kPart = int64_t{1} << 20;
  void update_parts(std::span<const Update> updates, bool changes_value, const PartWork& work);
  /// The numbers of a group; one called "lr" is not used.
  virtual std::vector<Hyperparameter> numbers(size_t) { return {}; }
  /// Only parameters of the same group and kind are updated by one call.
  virtual int kind_of(size_t parameter) const = 0;
  /// Dtype of the state, except that of f64 parameters, which is f64.
  virtual DType moment_dtype() const { return f32; }
  /// Shape, dtype and layout of a tensor of the state.
  struct StateSpec {
    Shape shape;
    DType dtype;
    Sharding sharding;
    bool operator==(const StateSpec&) const = default;
  };
  /// Returns those of one of `moments()`, by default the parameter's with the dtype of the state;
  /// {} for a parameter that has only the moments before it.
  virtual std::optional<StateSpec> state_spec(size_t parameter, size_t moment) const;
  /// Returns the numbers that differ from one update of a parameter to the next, for updates that a
  /// Graph records and replays; {} when only the learning rate can change. The default throws
  /// std::invalid_argument: steps of such an optimizer cannot be recorded.
  virtual std::vector<double> rates(size_t parameter, int64_t step) const;
  /// The tier in which the state rests between steps.
  virtual Tier offload() const { return {}; }

 private:
  void make_state();
  ParameterState new_moment(size_t first, size_t moment, const std::string& what);
  void find_runs(const std::vector<size_t>& with_gradient);
  Update update_of_run(size_t run, const Tensor& gradient_scale);
  void count(const std::vector<size_t>& updated);
  void record(std::vector<Update>& updates, const std::vector<size_t>& updated);
  void fill_rates(const Tensor& all, const std::vector<std::vector<size_t>>& runs) const;
  Device device_of(const Update& update) const;
  std::optional<Device> update_in_memory(Update update, bool changes_value, const PartWork& work);
  void update_on_disk(const std::vector<Update>& updates, bool changes_value, const PartWork& work);

  void check_group(size_t group) const;

  std::vector<double> learning_rates_;
  std::vector<std::map<std::string, double, std::less<>>> notes_;
  std::vector<NamedParameter> parameters_;
  std::vector<size_t> group_of_;
  std::vector<int64_t> steps_;
  std::vector<Tensors> state_;
  std::unique_ptr<ParameterRuns> runs_;
};

}  // namespace weft
