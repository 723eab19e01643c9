// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "weft/error.h"
#include "weft/optimizers.h"

namespace weft {

// Converts parameter groups to the arguments of an optimizer's constructor.

template <class Options>
std::vector<std::vector<NamedParameter>> parameters_of(
    const std::vector<ParameterGroup<Options>>& groups) {
  std::vector<std::vector<NamedParameter>> parameters;
  for (const auto& group : groups) parameters.push_back(group.parameters);
  return parameters;
}

template <class Options>
std::vector<Options> options_of(const std::vector<ParameterGroup<Options>>& groups) {
  std::vector<Options> options;
  for (const auto& group : groups) options.push_back(group.options);
  return options;
}

/// `member` of each group's options.
template <class Options, class T>
std::vector<T> each(const std::vector<ParameterGroup<Options>>& groups, T Options::*member) {
  std::vector<T> values;
  for (const auto& group : groups) values.push_back(group.options.*member);
  return values;
}

/// Whether weight decay applies to each parameter of an optimizer.
template <class Options>
std::vector<bool> decaying(const Optimizer& optimizer, const std::vector<Options>& options) {
  std::vector<bool> result;
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const DecayPredicate& decays = options[optimizer.group_of(i)].decays;
    result.push_back(!decays || decays(optimizer.parameters()[i]));
  }
  return result;
}

/// Checks that an option, which the optimizer has once, is that of the first group in all others.
template <class Options, class T>
void check_equal_in_groups(std::string_view what, std::string_view name,
                           const std::vector<Options>& options, T Options::*member) {
  for (size_t group = 1; group < options.size(); ++group) {
    if (options[group].*member == options[0].*member) continue;
    fail(what, ": ", name, " is ", options[group].*member, " in group ", group, ", expected ",
         options[0].*member, ", that of group 0");
  }
}

/// The numbers of AdamW and Lamb.
template <class Options> std::vector<Hyperparameter> adam_numbers(Options& options) {
  return {{"lr", &options.learning_rate},
          {"beta1", &options.beta1},
          {"beta2", &options.beta2},
          {"eps", &options.eps},
          {"weight_decay", &options.weight_decay}};
}

inline void check_adam(const char* what, double learning_rate, double beta1, double beta2,
                       double eps, double weight_decay) {
  if (!(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1)) {
    fail(what, ": betas are ", beta1, " and ", beta2, ", expected both in [0, 1)");
  }
  if (!(learning_rate >= 0) || !(eps >= 0) || !(weight_decay >= 0)) {
    fail(what, ": learning rate, eps and weight decay are ", learning_rate, ", ", eps, " and ",
         weight_decay, ", expected each at least 0");
  }
}

}  // namespace weft
