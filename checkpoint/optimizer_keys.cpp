// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/optimizer_keys.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "weft/error.h"

namespace weft {

ParameterNames names_of(const Optimizer& optimizer) {
  ParameterNames names;
  for (const NamedParameter& named : optimizer.parameters()) names.push_back(named.name());
  return names;
}

ParameterNames names_in(const std::map<std::string, const Module*>& modules,
                        const Optimizer& optimizer) {
  std::map<const Parameter*, std::pair<std::string, std::string>> found;  // part and name
  for (const auto& [part, module] : modules) {
    for (const NamedParameter& named : module->named_parameters()) {
      found.emplace(named.parameter.get(), std::pair(part, named.name()));
    }
  }
  ParameterNames names, with_parts;
  for (const NamedParameter& named : optimizer.parameters()) {
    const auto own = found.find(named.parameter.get());
    const bool is_found = own != found.end();
    names.push_back(is_found ? own->second.second : named.name());
    with_parts.push_back(is_found ? concat(own->second.first, '.', names.back()) : names.back());
  }
  const bool are_unique = std::set(names.begin(), names.end()).size() == names.size();
  return are_unique ? names : with_parts;
}

static std::string key_of(std::string_view option) {
  return option == "lr" ? "learning_rate" : std::string(option);
}

OptimizerKeys::OptimizerKeys(Optimizer& optimizer, std::vector<ParameterNames> names,
                             const Numbers& saved)
    : optimizer_(optimizer), saved_(saved) {
  // Older versions numbered parameters that were given without their names.
  ParameterNames numbers;
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) numbers.push_back(concat(i));
  names.push_back(std::move(numbers));
  const auto found = [&](const ParameterNames& of) {
    return std::ranges::count_if(
        of, [&](const std::string& name) { return saved_.contains(concat(name, ".steps")); });
  };
  // The first of those that find most.
  names_ = *std::ranges::max_element(names, {}, found);
}

/// The bits of the options of a parameter's group, by key.
static std::map<std::string, int64_t> options_of(Optimizer& optimizer, size_t parameter) {
  std::map<std::string, int64_t> options;
  for (const Hyperparameter& option : optimizer.hyperparameters(optimizer.group_of(parameter))) {
    options.emplace(key_of(option.name), std::bit_cast<int64_t>(option.get()));
  }
  return options;
}

// "kind.adamw" names the rule of the steps, and "<parameter>.decays", 0, a parameter without weight
// decay. Both are missing in checkpoints of older versions.
static constexpr std::string_view kKind = "kind.", kDecays = ".decays";
static constexpr std::string_view kWeightDecay = "weight_decay";

std::string saved_kind(const std::map<std::string, int64_t>& numbers, const std::string& prefix) {
  const auto found = numbers.lower_bound(concat(prefix, kKind));
  if (found == numbers.end() || !found->first.starts_with(concat(prefix, kKind))) return {};
  return found->first.substr(prefix.size() + kKind.size());
}

void OptimizerKeys::check_kind() const {
  const std::string kind = saved_kind(saved_, "");
  if (kind.empty() || optimizer_.name().empty() || kind == optimizer_.name()) return;
  fail("load_state_dict: the state is of ", kind, ", expected ", optimizer_.name(),
       ", the optimizer's; load_common_keys takes what both have");
}

void OptimizerKeys::add_options(Numbers& numbers) const {
  if (!optimizer_.name().empty()) numbers.emplace(concat(kKind, optimizer_.name()), 1);
  for (size_t i = 0; i < names_.size(); ++i) {
    if (!optimizer_.decays(i)) numbers.emplace(concat(names_[i], kDecays), 0);
  }
  Numbers first = options_of(optimizer_, 0);
  // Notes have no default: other groups may lack them.
  for (const std::string& note : Optimizer::note_names()) first.erase(note);
  numbers.insert(first.begin(), first.end());
  for (size_t i = 0; i < names_.size(); ++i) {
    for (const auto& [key, bits] : options_of(optimizer_, i)) {
      const auto same = first.find(key);
      if (same != first.end() && same->second == bits) continue;
      numbers.emplace(concat(names_[i], '.', key), bits);
    }
  }
}

bool OptimizerKeys::is_numbered(const std::string& option) const {
  const std::string start = option + '.';
  return std::ranges::any_of(saved_, [&](const auto& saved) {
    const std::string& key = saved.first;
    return key.size() > start.size() && key.starts_with(start) &&
           key.find_first_not_of("0123456789", start.size()) == key.npos;
  });
}

std::pair<std::string, int64_t> OptimizerKeys::saved_option(size_t parameter,
                                                            const std::string& option) const {
  const size_t group = optimizer_.group_of(parameter);
  std::vector<std::string> keys{concat(names_[parameter], '.', option), concat(option, '.', group)};
  // If the groups are numbered, the key without a number belongs to the first group.
  if (group == 0 || !is_numbered(option)) keys.push_back(option);
  for (const std::string& key : keys) {
    const auto found = saved_.find(key);
    if (found != saved_.end()) return *found;
  }
  return {};
}

/// Every option that an optimizer has or may note.
static std::vector<std::string> known_options(Optimizer& optimizer) {
  std::vector<std::string> known = Optimizer::note_names();
  for (size_t group = 0; group < optimizer.groups(); ++group) {
    for (const Hyperparameter& option : optimizer.hyperparameters(group)) {
      known.emplace_back(option.name);
    }
  }
  return known;
}

void OptimizerKeys::add_saved_options(Numbers& numbers) const {
  const std::string kind = saved_kind(saved_, "");
  if (!kind.empty()) numbers.emplace(concat(kKind, kind), 1);
  // The first of each group, and the first that decays.
  const size_t none = names_.size();
  std::vector<size_t> firsts(optimizer_.groups(), none), decaying = firsts;
  for (size_t i = names_.size(); i-- > 0;) {
    firsts[optimizer_.group_of(i)] = i;
    if (optimizer_.decays(i)) decaying[optimizer_.group_of(i)] = i;
    if (saved_.contains(concat(names_[i], kDecays))) {
      numbers.emplace(concat(names_[i], kDecays), 0);
    }
  }
  for (const std::string& option : known_options(optimizer_)) {
    for (size_t i = 0; i < names_.size(); ++i) {
      size_t first = firsts[optimizer_.group_of(i)];
      // A parameter without decay may have been saved in a group whose decay is 0.
      if (option == kWeightDecay)
        first = optimizer_.decays(i) ? decaying[optimizer_.group_of(i)] : i;
      const auto [key, bits] = saved_option(i, key_of(option));
      const auto [other_key, other] = saved_option(first, key_of(option));
      if (key.empty() != other_key.empty() || bits != other) {
        fail("load_state_dict: option ", in_quotes(option), " of parameter ", in_quotes(names_[i]),
             " is ", std::bit_cast<double>(bits), ", expected ", std::bit_cast<double>(other),
             ", that of ", in_quotes(names_[first]), " in its group");
      }
      if (!key.empty()) numbers.emplace(key, bits);
      if (key.empty() && is_numbered(key_of(option))) {  // the group is missing
        numbers.emplace(concat(key_of(option), '.', optimizer_.group_of(i)), 0);
      }
      // The first parameter's group is the default of all, and stays so if no parameter uses it.
      const auto all = saved_.find(key_of(option));
      if (all != saved_.end()) numbers.insert(*all);
    }
  }
  numbers.emplace("learning_rate", 0);
}

StateDict OptimizerKeys::state() const {
  StateDict state;
  const std::vector<std::string> moments = optimizer_.moments();
  for (size_t i = 0; i < names_.size(); ++i) {
    // Without moments no state is made, which needs parameters with memory.
    const Tensors own = moments.empty() ? Tensors() : optimizer_.state(i);
    for (size_t m = 0; m < std::min(moments.size(), own.size()); ++m) {
      state.tensors.emplace(concat(names_[i], '.', moments[m]), own[m]);
    }
    if (!state.numbers.emplace(concat(names_[i], ".steps"), optimizer_.steps(i)).second) {
      fail("state_dict: two parameters of the optimizer are called ", in_quotes(names_[i]),
           ", expected different names; give it those of one module that holds both");
    }
  }
  saved_.empty() ? add_options(state.numbers) : add_saved_options(state.numbers);
  return state;
}

void OptimizerKeys::take(const Numbers& saved) const {
  for (size_t i = 0; i < names_.size(); ++i) {
    const auto steps = saved.find(concat(names_[i], ".steps"));
    if (steps != saved.end()) optimizer_.set_steps(i, steps->second);
    for (const std::string& option : known_options(optimizer_)) {
      const auto [key, bits] = saved_option(i, key_of(option));
      if (key.empty() || (option == kWeightDecay && !optimizer_.decays(i))) continue;
      optimizer_.set(optimizer_.group_of(i), option, std::bit_cast<double>(bits));
    }
  }
}

StateDict state_dict(Optimizer& optimizer) {
  return OptimizerKeys(optimizer, {names_of(optimizer)}, {}).state();
}

}  // namespace weft
