// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "nn/parameter_memory.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/views.h"
#include "weft/graph.h"
#include "weft/ops/factories.h"
#include "weft/optimizers.h"
#include "weft/stream.h"

namespace weft {

Optimizer::~Optimizer() = default;

Optimizer::Optimizer(std::vector<std::vector<NamedParameter>> groups,
                     std::vector<double> learning_rates)
    : runs_(std::make_unique<ParameterRuns>()) {
  for (size_t group = 0; group < groups.size(); ++group) {
    add(std::move(groups[group]), learning_rates[group]);
  }
  if (parameters_.empty())
    fail("optimizer: number of trainable parameters is 0, expected at least 1");
}

void Optimizer::add(std::vector<NamedParameter> group, double learning_rate) {
  std::erase_if(group, [](const NamedParameter& one) { return !one.parameter->is_trainable(); });
  std::set<const Parameter*> seen;
  for (const NamedParameter& earlier : parameters_) seen.insert(earlier.parameter.get());
  for (const NamedParameter& named : group) {
    if (!seen.insert(named.parameter.get()).second)
      fail("optimizer: parameter ", named.name(), " is given twice, expected once");
  }
  group_of_.insert(group_of_.end(), group.size(), groups());
  std::ranges::move(group, std::back_inserter(parameters_));
  learning_rates_.push_back(learning_rate);
  notes_.emplace_back();
  steps_.resize(parameters_.size());
  runs_->runs.clear();
  runs_->with_gradient.clear();
}

Optimizer::Optimizer(const Optimizer& other, const std::vector<ParameterPtr>& parameters)
    : learning_rates_(other.learning_rates_),
      notes_(other.notes_),
      parameters_(other.parameters_),
      group_of_(other.group_of_),
      steps_(other.steps_),
      runs_(std::make_unique<ParameterRuns>()) {
  if (parameters.size() != parameters_.size()) {
    fail("copy_for: number of parameters is ", parameters.size(), ", expected ",
         parameters_.size());
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i]) fail("copy_for: parameter ", i, " is null, expected a parameter");
    if (!(parameters[i]->shape() == parameters_[i].parameter->shape())) {
      fail("copy_for: parameter ", i, " is ", parameters[i]->shape(), ", expected ",
           parameters_[i].parameter->shape());
    }
    parameters_[i].parameter = parameters[i];
  }
}

std::unique_ptr<Optimizer> Optimizer::copy_for(const std::vector<ParameterPtr>&) {
  fail("copy_for: this optimizer cannot be copied, expected a built-in one; make another one ",
       "and load_state_dict() into it");
}

void Optimizer::check_group(size_t group) const {
  if (group >= groups()) fail("optimizer: group is ", group, ", expected one below ", groups());
}

std::vector<Hyperparameter> Optimizer::hyperparameters(size_t group) {
  check_group(group);
  std::vector<Hyperparameter> all = numbers(group);
  std::erase_if(all, [](const Hyperparameter& number) { return number.name == "lr"; });
  all.insert(all.begin(), {"lr", &learning_rates_[group]});
  for (auto& [name, value] : notes_[group]) all.push_back({name, &value});
  return all;
}

const std::vector<std::string>& Optimizer::note_names() {
  static const std::vector<std::string> names{"initial_lr", "max_lr", "min_lr", "base_momentum",
                                              "max_momentum"};
  return names;
}

void Optimizer::set(size_t group, std::string_view name, double value) {
  const std::vector<Hyperparameter> all = hyperparameters(group);
  const auto found = std::ranges::find(all, name, &Hyperparameter::name);
  if (found != all.end()) return found->set(value);
  if (std::ranges::find(note_names(), name) == note_names().end()) {
    fail("optimizer: option ", in_quotes(name), " of group ", group,
         " does not exist, expected an option of this optimizer or a note of a schedule");
  }
  notes_[group].emplace(name, value);
}

double Optimizer::learning_rate(size_t group) const {
  check_group(group);
  return learning_rates_[group];
}

void Optimizer::set_learning_rate(size_t group, double learning_rate) {
  check_group(group);
  learning_rates_[group] = learning_rate;
}

void Optimizer::set_learning_rate(double learning_rate) {
  learning_rates_.assign(groups(), learning_rate);
}

void Optimizer::zero_grad() {
  for (const NamedParameter& named : parameters_) named.parameter->clear_grad();
}

void Optimizer::set_steps(size_t parameter, int64_t steps) {
  steps_[parameter] = steps;
  runs_->runs.clear();
  runs_->with_gradient.clear();
}

static void check_layouts(const NamedParameter& named, const Tensor& gradient,
                          const Tensors& state) {
  const Tensor& value = named.parameter->value();
  check_writable("optimizer", value);
  if (value.sharding() != gradient.sharding()) {
    fail("optimizer: parameter ", named.name(), " has a gradient laid out as ", gradient.sharding(),
         ", expected ", value.sharding(), ", the layout of the parameter");
  }
  if (!state.empty() && value.sharding() != state[0].sharding()) {
    fail("optimizer: parameter ", named.name(), " is laid out as ", value.sharding(), ", expected ",
         state[0].sharding(), ", its layout at the first step");
  }
}

static bool any_on_disk(const Tensor& value, const Tensor& gradient, const Tensors& state) {
  return rests_on_disk(value) || rests_on_disk(gradient) ||
         std::ranges::any_of(state, rests_on_disk);
}

void Optimizer::find_runs(const std::vector<size_t>& with_gradient) {
  // Checked even if memory and runs are those of the step before: a gradient that is not reduced
  // yet may use the same memory.
  for (size_t i : with_gradient) check_layouts(parameters_[i], runs_->gradients[i], state_[i]);
  if (with_gradient == runs_->with_gradient && runs_->hold()) return;
  std::vector<const Tensors*> lists{&runs_->values, &runs_->gradients};
  for (const ParameterState& moment : runs_->state) lists.push_back(&moment.tensors);
  runs_->runs = adjacent_runs(lists, with_gradient, [&](size_t before, size_t after) {
    // Runs on disk pass through memory array by array.
    return !any_on_disk(runs_->values[before], runs_->gradients[before], state_[before]) &&
           steps_[before] == steps_[after] && group_of_[before] == group_of_[after] &&
           kind_of(before) == kind_of(after);
  });
  runs_->with_gradient = with_gradient;
}

void Optimizer::step(const Tensor& gradient_scale) {
  make_state();
  runs_->values.resize(parameters_.size());
  runs_->gradients.resize(parameters_.size());
  std::vector<size_t> with_gradient;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    runs_->values[i] = parameters_[i].parameter->value();
    runs_->gradients[i] = parameters_[i].parameter->grad();
    if (runs_->gradients[i]) with_gradient.push_back(i);
  }
  if (with_gradient.empty()) {
    fail("optimizer: number of gradients is 0, expected at least one for ", parameters_.size(),
         " parameters, the first of which is ", parameters_[0].name(), "; call backward first");
  }
  find_runs(with_gradient);
  NoGrad no_grad;
  if (!runs_->one) {
    const PurposeScope purpose(Purpose::other);
    runs_->one = ones({}, {.device = runs_->values[0].device()});
  }
  const Tensor scale = gradient_scale ? gradient_scale.local() : runs_->one;
  std::vector<Update> updates;
  for (size_t run = 0; run < runs_->runs.size(); ++run) {
    updates.push_back(update_of_run(run, scale));
  }
  if (Graph::recording()) record(updates, with_gradient);
  update_all(updates);
  if (!Graph::recording()) count(with_gradient);
  // They are not kept until the next step: the memory is free once they are cleared or replaced.
  runs_->values.clear();
  runs_->gradients.clear();
}

void Optimizer::count(const std::vector<size_t>& updated) {
  for (const size_t i : updated) {
    ++steps_[i];
    // Also if this rank holds no element, so that all ranks see that the parameter changed.
    mark_written(parameters_[i].parameter->value());
    for (const Tensor& moment : state_[i]) mark_written(moment);
  }
}

std::vector<double> Optimizer::rates(size_t, int64_t) const {
  fail("optimizer: a graph records a step of another class, expected AdamW or SGD");
}

/// Allocates memory that is filled before the graph is replayed. It comes from another stream,
/// because memory that the record takes itself may have had another use earlier in the record.
static Tensor rates_beside_a_record(Device device, const Shape& shape) {
  const StreamScope scope(stream_for(device, StreamRole::copy));
  return empty(shape, {.dtype = f64, .device = device});
}

/// Prepares the updates for replay: they read the rates that are in memory at that time.
void Optimizer::record(std::vector<Update>& updates, const std::vector<size_t>& updated) {
  Tensor all;
  for (size_t i = 0; i < updates.size(); ++i) {
    Update& update = updates[i];
    const Device device = device_of(update);
    if (device.kind != DeviceKind::cuda) {
      fail("optimizer: parameter ", parameters_[update.parameter].name(), " is on ", device,
           ", expected a GPU, whose updates a graph records");
    }
    const auto each = static_cast<int64_t>(rates(update.parameter, update.step).size());
    if (each == 0) continue;
    if (!all) all = rates_beside_a_record(device, {static_cast<int64_t>(updates.size()), each});
    update.rates = tensor_in(all.storage(), static_cast<int64_t>(i) * each, {each}, f64);
  }
  Graph::recording()->before_each_play(
      [this, all, updated, runs = runs_->runs, recorded = learning_rates_] {
        if (all) fill_rates(all, runs);
        for (size_t group = 0; !all && group < groups(); ++group) {
          if (learning_rates_[group] == recorded[group]) continue;
          fail("optimizer: the learning rate is ", learning_rates_[group], ", expected ",
               recorded[group], ", that of the graph's record");
        }
        count(updated);
      });
}

/// Fills in the rates of the next step, one row per run.
void Optimizer::fill_rates(const Tensor& all, const std::vector<std::vector<size_t>>& runs) const {
  std::vector<double> values;
  for (const Run& run : runs) {
    for (const size_t i : run) {
      if (steps_[i] == steps_[run[0]]) continue;
      fail("optimizer: parameters ", parameters_[run[0]].name(), " and ", parameters_[i].name(),
           " have had ", steps_[run[0]], " and ", steps_[i],
           " updates, expected equal numbers, as when a graph recorded their next");
    }
    const std::vector<double> now = rates(run[0], steps_[run[0]] + 1);
    values.insert(values.end(), now.begin(), now.end());
  }
  const NoGrad no_grad;
  copy_(all, from_values(values, all.shape(), {.dtype = f64}));
}

Optimizer::Update Optimizer::update_of_run(size_t number, const Tensor& gradient_scale) {
  const Run& run = runs_->runs[number];
  Tensors state;
  for (const ParameterState& moment : runs_->state) {
    if (moment.tensors[run[0]]) state.push_back(flat(moment.tensors, run));
  }
  return {flat(runs_->values, run),
          flat(runs_->gradients, run),
          std::move(state),
          gradient_scale,
          run[0],
          steps_[run[0]] + 1};
}

/// The arrays of an update: the value, the gradient and the state.
template <class Update>
static std::vector<UpdatedArray> arrays_of(const Update& update, bool changes_value) {
  std::vector<UpdatedArray> arrays{{update.value, changes_value}, {update.gradient, false}};
  for (const Tensor& moment : update.state) arrays.push_back({moment, true});
  return arrays;
}

/// An update runs on one device: a GPU if any of its tensors is on one.
Device Optimizer::device_of(const Update& update) const {
  for (const auto& [array, changes] : arrays_of(update, true)) {
    if (array.device().kind == DeviceKind::cuda) return array.device();
  }
  return update.value.device();
}

/// The same update of other arrays.
template <class Update> static Update update_of(const Update& whole, const Tensors& parts) {
  Update part = whole;
  part.value = parts[0];
  part.gradient = parts[1];
  part.state.assign(parts.begin() + 2, parts.end());
  return part;
}

/// Returns the GPU through which the arrays passed, which may still use the host's memory.
std::optional<Device> Optimizer::update_in_memory(Update run, bool changes_value,
                                                  const PartWork& work) {
  const Device device = device_of(run);
  run.gradient_scale = run.gradient_scale.to(device);
  const auto arrays = arrays_of(run, changes_value);
  const auto is_here = [&](const UpdatedArray& one) { return one.array.device() == device; };
  if (std::ranges::all_of(arrays, is_here)) {
    work(run);
    return {};
  }
  update_offloaded(device, arrays, [&](const Tensors& parts) { work(update_of(run, parts)); });
  return device;
}

void Optimizer::update_on_disk(const std::vector<Update>& updates, bool changes_value,
                               const PartWork& work) {
  if (Graph::recording()) {
    fail("optimizer: parameter ", parameters_[updates[0].parameter].name(),
         " has state on disk, expected it in memory, where a graph updates it");
  }
  std::vector<std::vector<UpdatedArray>> arrays;
  for (const Update& whole : updates) arrays.push_back(arrays_of(whole, changes_value));
  update_through_memory(arrays, [&](size_t i, const Tensors& parts) {
    const auto passed = update_in_memory(update_of(updates[i], parts), changes_value, work);
    if (passed) await_offloaded(*passed);
  });
}

void Optimizer::update_all(std::span<const Update> updates) {
  update_parts(updates, true, [this](const Update& part) { update(part); });
}

void Optimizer::update_parts(std::span<const Update> updates, bool changes_value,
                             const PartWork& work) {
  std::optional<Device> passed;
  std::vector<Update> on_disk;
  for (const Update& run : updates) {
    if (any_on_disk(run.value, run.gradient, run.state)) {
      on_disk.push_back(run);
    } else if (const auto device = update_in_memory(run, changes_value, work)) {
      passed = device;
    }
  }
  if (passed) await_offloaded(*passed);
  if (!on_disk.empty()) update_on_disk(on_disk, changes_value, work);
}

}  // namespace weft
