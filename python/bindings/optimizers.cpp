// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/optimizers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <variant>
#include <vector>

#include <range/v3/range/conversion.hpp>
#include <range/v3/view/transform.hpp>

#include "weft/extend/disk_tensor.h"
#include "weft/ops/elementwise.h"
#include "weft/state_dict.h"

namespace weft::python {

namespace {

/// An optimizer whose update is written in Python.
class WrittenOptimizer : public Optimizer {
 public:
  WrittenOptimizer(const std::vector<ParameterGroup<NamedNumbers>>& groups,
                   const std::vector<double>& learning_rates, NamedNumbers defaults,
                   std::vector<std::string> moments)
      : Optimizer(groups | ranges::views::transform(&ParameterGroup<NamedNumbers>::parameters) |
                      ranges::to<std::vector>(),
                  learning_rates),
        defaults_(std::move(defaults)),
        moments_(std::move(moments)) {
    for (const auto& group : groups) numbers_.push_back(group.options);
  }
  const NamedNumbers& defaults() const { return defaults_; }
  void add_group(ParameterGroup<NamedNumbers> group) {
    add(std::move(group.parameters), group.options.extract("lr").mapped());
    numbers_.push_back(std::move(group.options));
  }
  std::vector<std::string> moments() const override { return moments_; }

 protected:
  void update(const Update& update) override {
    const Tensor gradient = update.gradient * update.gradient_scale;
    const Locked lock;
    const py::function written = py::get_override(static_cast<const Optimizer*>(this), "update");
    if (!written)
      fail(
          "optimizer: update is missing, expected update(value, gradient, state, step, options) in "
          "its class");
    const size_t group = group_of(update.parameter);
    py::dict options("lr"_a = learning_rate(group));
    for (const auto& [name, value] : numbers_[group]) options[name.c_str()] = value;
    written(update.value, gradient, update.state, update.step, options);
  }
  int kind_of(size_t) const override { return 0; }
  std::vector<Hyperparameter> numbers(size_t group) override {
    std::vector<Hyperparameter> all;
    for (auto& [name, value] : numbers_[group]) all.push_back({name, &value});
    return all;
  }

 private:
  std::vector<NamedNumbers> numbers_;
  const NamedNumbers defaults_;
  const std::vector<std::string> moments_;
};

}  // namespace

/// Sets an option of an optimizer that is written in Python.
static bool set_number(NamedNumbers& numbers, const std::string& name, const py::handle& value) {
  const auto found = numbers.find(name);
  if (found == numbers.end()) return false;
  found->second = value.cast<double>();
  return true;
}

static std::unique_ptr<WrittenOptimizer> written_optimizer(const py::object& parameters,
                                                           const NamedNumbers& options,
                                                           std::vector<std::string> moments) {
  if (!options.contains("lr"))
    fail("optimizer: option \"lr\" is missing, expected a learning rate");
  GroupNotes notes;
  auto groups = groups_of(parameters, options, set_number, notes);
  std::vector<double> rates;
  for (auto& group : groups) rates.push_back(group.options.extract("lr").mapped());
  return with_notes(std::make_unique<WrittenOptimizer>(groups, rates, options, std::move(moments)),
                    notes);
}

static py::list parameters_of_group(const Optimizer& o, size_t group) {
  py::list parameters;
  for (size_t i = 0; i < o.parameters().size(); ++i) {
    if (o.group_of(i) == group) parameters.append(o.parameters()[i].parameter);
  }
  return parameters;
}

/// The hyperparameters and notes of a group.
static py::dict numbers_of_group(Optimizer& o, size_t group) {
  py::dict numbers;
  for (const Hyperparameter& number : o.hyperparameters(group)) {
    const py::str name{std::string(number.name)};
    std::visit([&](const auto* value) { numbers[name] = *value; }, number.value);
  }
  return numbers;
}

/// Fills tensors of the state from tensors of equal shape and dtype, whatever the layouts.
static void take_state(const std::vector<std::pair<Tensor, Tensor>>& pairs) {
  StateDict to, from;
  for (size_t i = 0; i < pairs.size(); ++i) {
    to.tensors.emplace(concat(i), pairs[i].first);
    from.tensors.emplace(concat(i), pairs[i].second);
  }
  load_tensors(to, from);
}

static void check_parameter(const char* what, const Optimizer& o, size_t parameter) {
  const size_t number = o.parameters().size();
  if (parameter >= number)
    fail(what, ": parameter is ", parameter, ", expected one below ", number);
}

static void bind_base(py::module_& m) {
  py::class_<Optimizer, WrittenOptimizer> bound(
      m, "Optimizer",
      "Changes parameters by their gradients. It holds their slots, so they may be sharded, "
      "gathered or loaded meanwhile. A class derived from it defines update(value, gradient, "
      "state, step, options), which changes `value` and the tensors of `state`, zeros at first, in "
      "place. Each is the flat part of one or several parameters that this rank holds; `step` "
      "counts from 1, and `options` is a dict of the numbers of their group");
  bound.def(py::init(&written_optimizer), "parameters"_a, "options"_a, py::kw_only(),
            "moments"_a = std::vector<std::string>(),
            "parameters: as AdamW takes them. options: numbers by name, with an \"lr\"; groups may "
            "have others of these names. moments: the names of the tensors in `state`");
  refuse_to_pickle(bound,
                   "an Optimizer is not pickled; make another one and load_state_dict() into it "
                   "what weft.state_dict() gives");
  bound.def("_copy_for", &Optimizer::copy_for, Released(), "parameters"_a)
      .def_property_readonly("_parameters", [](const Optimizer& o) {
        return o.parameters() | ranges::views::transform(&NamedParameter::parameter) |
               ranges::to<std::vector>();
      });
  def(bound, "step(gradient_scale=None)",
      "One update by the gradients times the one element of gradient_scale (clip_scale gives one). "
      "Parameters without a gradient stay; ValueError when none has one",
      Released(), [](Optimizer& o, const MaybeTensor& scale) { o.step(scale); });
  def(bound, "zero_grad(set_to_none=True)", "Clears the gradients of its parameters", Released(),
      [](Optimizer& o, bool set_to_none) {
        if (!set_to_none) {
          fail(
              "zero_grad: set_to_none is False, expected True; gradients are cleared, not filled "
              "with 0");
        }
        o.zero_grad();
      });
  bound
      .def_property(
          "lr", [](const Optimizer& o) { return o.learning_rate(); },
          [](Optimizer& o, double rate) { o.set_learning_rate(rate); },
          "The learning rate of the first group; setting it sets that of all")
      .def_property_readonly("_group_count", &Optimizer::groups)
      .def("_group_parameters", &parameters_of_group)
      .def("_group_numbers", &numbers_of_group)
      .def("_set", &Optimizer::set)
      .def("_set_steps", &Optimizer::set_steps);
  bound.def_static("_take_state", &take_state, Released());
  bound.def_property_readonly_static("_note_names",
                                     [](const py::object&) { return Optimizer::note_names(); });
  bound.def(
      "add_param_group",
      [](WrittenOptimizer& o, const py::dict& group) { add_group(o, group, set_number); },
      "param_group"_a, kAddGroup);
  getter(bound, "names", "Names of the trainable parameters it was given", [](const Optimizer& o) {
    return o.parameters() | ranges::views::transform(&NamedParameter::name) |
           ranges::to<std::vector<std::string>>();
  });
  bound.def_property_readonly("moments", &Optimizer::moments, "Names of the state of each");
  def(bound, "state(parameter)",
      "The state of parameter number `parameter`, in its layout: a tensor for each of "
      "`moments`. Change them in place only",
      [](Optimizer& o, size_t parameter) {
        check_parameter("state", o, parameter);
        return released([&] { return o.state(parameter); });
      });
  def(bound, "steps(parameter)", "The number of updates of parameter number `parameter`",
      [](const Optimizer& o, size_t parameter) {
        check_parameter("steps", o, parameter);
        return o.steps(parameter);
      });
}

void bind_optimizers(py::module_& m) {
  bind_base(m);
  bind_optimizer_kinds(m);
  bind_training_parts(m);
  using C = WarmupCosine;
  bind_options<C>(
      m, "WarmupCosine",
      "A learning rate by step, counted from 0: it grows evenly to `peak`, reached after `warmup` "
      "steps, and falls along half a cosine to `floor`, reached at step `total` and kept",
      needed("peak", &C::peak), needed("warmup", &C::warmup), needed("total", &C::total),
      option("floor", &C::floor))
      .def("__call__", &C::operator(), "step"_a,
           "ValueError for a negative step or a warm-up longer than the whole");
  def(m, "in_memory(tensor)", &in_memory,
      "The tensor, or a copy in memory of one that rests on disk");
  def(m, "rests_on_disk(tensor)", &rests_on_disk,
      "True when the elements of this rank rest in a file (offload=\"disk:DIR\")");
}

}  // namespace weft::python
