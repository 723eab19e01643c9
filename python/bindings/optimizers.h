// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "python/bindings/modules.h"
#include "weft/muon.h"
#include "weft/optimizers.h"

namespace weft::python {

// Groups of parameters that Python gives, and the optimizers of which they are.

Bind bind_optimizer_kinds, bind_training_parts;

/// The numbers of a group, by name.
using NamedNumbers = std::map<std::string, double>;

/// Notes of schedules, by group.
using GroupNotes = std::vector<NamedNumbers>;

/// Returns the group in a dict with "params" and options, each of which `set(options, name, value)`
/// takes if it returns true; notes of schedules go to `notes`.
template <class Options, class Set>
ParameterGroup<Options> group_in(const py::handle& item, size_t number, const Options& defaults,
                                 const Set& set, NamedNumbers& notes) {
  if (!py::isinstance<py::dict>(item) || !item.contains("params")) {
    fail_type("parameters: group ", number,
              " has no \"params\", expected a dict with a list of parameters");
  }
  py::object params = item["params"];
  if (py::isinstance<Parameter>(params)) params = py::make_tuple(params);
  ParameterGroup<Options> group{named_parameters_of(params), defaults};
  for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(item)) {
    const auto name = py::cast<std::string>(key);
    if (name == "params" || set(group.options, name, value)) continue;
    if (std::ranges::find(Optimizer::note_names(), name) == Optimizer::note_names().end()) {
      fail("parameters: option ", in_quotes(name), " of group ", number,
           " does not exist in this optimizer");
    }
    notes[name] = py::cast<double>(value);
  }
  return group;
}

/// Numbers the parameters without names, which `named_parameters_of` counts from 0, on.
inline void count_on(std::vector<NamedParameter>& parameters, size_t before) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::vector<std::string>& names = parameters[i].names;
    if (names[0] == concat(i)) names[0] = concat(before + i);
  }
}

/// Returns the groups that Python gives: a module, parameters, or dicts of `group_in`.
template <class Options, class Set>
std::vector<ParameterGroup<Options>> groups_of(const py::object& given, const Options& defaults,
                                               const Set& set, GroupNotes& notes) {
  if (!py::isinstance<py::sequence>(given) || py::len(given) == 0 ||
      !py::isinstance<py::dict>(given[py::int_(0)])) {
    return {{named_parameters_of(given), defaults}};
  }
  std::vector<ParameterGroup<Options>> groups;
  size_t before = 0;
  for (const py::handle item : given) {
    notes.emplace_back();
    groups.push_back(group_in(item, groups.size(), defaults, set, notes.back()));
    count_on(groups.back().parameters, before);
    before += groups.back().parameters.size();
  }
  return groups;
}

template <class Kind>
std::unique_ptr<Kind> with_notes(std::unique_ptr<Kind> made, const GroupNotes& notes) {
  for (size_t group = 0; group < notes.size(); ++group) {
    for (const auto& [name, value] : notes[group]) made->set(group, name, value);
  }
  return made;
}

/// Adds the group of a dict, with the options that the optimizer was made with.
template <class Kind, class Set>
void add_group(Kind& optimizer, const py::dict& given, const Set& set) {
  NamedNumbers notes;
  auto group = group_in(given, optimizer.groups(), optimizer.defaults(), set, notes);
  size_t before = 0;
  for (const NamedParameter& named : optimizer.parameters()) {
    const std::string& name = named.name();
    const bool is_number = std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
    if (is_number) before = std::max(before, static_cast<size_t>(std::stoull(name)) + 1);
  }
  count_on(group.parameters, before);
  optimizer.add_group(std::move(group));
  for (const auto& [name, value] : notes) optimizer.set(optimizer.groups() - 1, name, value);
}

inline bool set_among(const std::vector<Hyperparameter>& numbers, std::string_view name,
                      double value) {
  for (const Hyperparameter& number : numbers) {
    if (number.name != name) continue;
    number.set(value);
    return true;
  }
  return false;
}

/// The name of PyTorch for how the rate of Muon depends on the shape.
inline MuonRate muon_rate_of(const std::optional<std::string>& given) {
  return static_cast<MuonRate>(number_among("muon", "adjust_lr_fn", given.value_or("original"),
                                            {"original", "match_rms_adamw", "spectral_unclamped"}));
}

/// Sets an option of a built-in optimizer by its name in PyTorch.
template <class Options>
bool set_option(Options& options, const std::string& name, const py::handle& value) {
  if constexpr (requires { options.beta1; }) {
    if (name == "betas") {
      std::tie(options.beta1, options.beta2) = value.cast<std::pair<double, double>>();
      return true;
    }
  }
  if constexpr (requires { options.coefficients; }) {
    if (name == "ns_coefficients") {
      options.coefficients = value.cast<std::array<double, 3>>();
      return true;
    }
    if (name == "adjust_lr_fn") {
      options.rate = muon_rate_of(value.cast<std::optional<std::string>>());
      return true;
    }
  }
  return set_among(hyperparameters(options), name, value.cast<double>());
}

inline constexpr const char* kAddGroup =
    "Adds a group, a dict with \"params\" and the options that differ from those that the "
    "optimizer "
    "was made with; between steps too";

/// Binds a built-in optimizer: its constructor takes parameters, and `items`, fields of Options.
template <class Kind, class Options, class... Items>
void bind_optimizer(py::module_& m, const char* name, const char* doc, const Items&... items) {
  py::class_<Kind, Optimizer> kind(m, name, doc);
  const auto make = [](const py::object& parameters, const Options& options) {
    GroupNotes notes;
    auto groups = groups_of(parameters, options, set_option<Options>, notes);
    return with_notes(std::make_unique<Kind>(std::move(groups), options), notes);
  };
  bind_constructor<Options, py::object>(kind, make, "parameters"_a, items...);
  kind.def(
      "add_param_group",
      [](Kind& o, const py::dict& group) { add_group(o, group, set_option<Options>); },
      "param_group"_a, kAddGroup);
}

}  // namespace weft::python
