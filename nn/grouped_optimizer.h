// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <range/v3/range/conversion.hpp>
#include <range/v3/view/transform.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/error.h"
#include "weft/optimizers.h"
#include "weft/parameter_groups.h"

// The members of GroupedOptimizer, for the files that instantiate it.

namespace weft {

struct MuonOptions;

/// Checks the options of all groups of an optimizer.
void check_all(const std::vector<AdamOptions>& all);
void check_all(const std::vector<AdamWOptions>& all);
void check_all(const std::vector<AdamW8bitOptions>& all);
void check_all(const std::vector<LambOptions>& all);
void check_all(const std::vector<LionOptions>& all);
void check_all(const std::vector<MuonOptions>& all);
void check_all(const std::vector<SGDOptions>& all);

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

template <class Options> void check_adam(std::string_view what, const Options& o) {
  if (!(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1)) {
    fail(what, ": betas are ", o.beta1, " and ", o.beta2, ", expected both in [0, 1)");
  }
  if (!(o.learning_rate >= 0) || !(o.eps >= 0) || !(o.weight_decay >= 0)) {
    fail(what, ": learning rate, eps and weight decay are ", o.learning_rate, ", ", o.eps, " and ",
         o.weight_decay, ", expected each at least 0");
  }
}

inline void check_moments(std::string_view what, DType moments, bool is_f32 = false) {
  if (is_f32 ? moments == f32 : is_floating(moments) && !is_float8(moments)) return;
  fail(what, ": dtype of moments is ", moments, ", expected ",
       is_f32 ? "f32" : "f32, bf16, f16 or f64");
}

/// `check_no_decay` for the patterns of all groups; those that have an equal one count together.
template <class Options> void check_patterns(const std::vector<ParameterGroup<Options>>& groups) {
  const auto predicate_of = [](const ParameterGroup<Options>& group) {
    return group.options.decays.template target<NoDecay>();
  };
  for (const auto& group : groups) {
    const NoDecay* own = predicate_of(group);
    if (!own) continue;
    std::vector<NamedParameter> all;
    for (const auto& other : groups) {
      const NoDecay* one = predicate_of(other);
      if (!one || one->pattern != own->pattern) continue;
      all.insert(all.end(), other.parameters.begin(), other.parameters.end());
    }
    check_no_decay(*own, all);
  }
}

/// Finds `hyperparameters` of options that are declared later.
template <class Options> std::vector<Hyperparameter> numbers_in(Options& options) {
  return hyperparameters(options);
}

/// A projection of each group.
template <class Group, class Projection>
auto each_group(const std::vector<Group>& groups, Projection projection) {
  return groups | ranges::views::transform(projection) | ranges::to<std::vector>();
}

template <class Self, class Options>
GroupedOptimizer<Self, Options>::GroupedOptimizer(std::vector<ParameterGroup<Options>> groups,
                                                  Options defaults)
    : Optimizer(each_group(groups, &ParameterGroup<Options>::parameters),
                each_group(groups, [](const auto& group) { return group.options.learning_rate; })),
      options_(each_group(groups, &ParameterGroup<Options>::options)),
      defaults_(std::move(defaults)) {
  check_patterns(groups);
  for (size_t i = 0; i < parameters().size(); ++i) {
    const DecayPredicate& decays = options_[group_of(i)].decays;
    decays_.push_back(!decays || decays(parameters()[i]));
  }
  check_all(options_);
}

template <class Self, class Options>
void GroupedOptimizer<Self, Options>::add_group(ParameterGroup<Options> group) {
  std::vector<Options> all = options_;
  all.push_back(group.options);
  check_all(all);
  add(std::move(group.parameters), group.options.learning_rate);
  options_ = std::move(all);
  for (size_t i = decays_.size(); i < parameters().size(); ++i) {
    const DecayPredicate& decays = group.options.decays;
    decays_.push_back(!decays || decays(parameters()[i]));
  }
}

template <class Self, class Options>
std::vector<Hyperparameter> GroupedOptimizer<Self, Options>::numbers(size_t group) {
  return numbers_in(options_[group]);
}

}  // namespace weft
