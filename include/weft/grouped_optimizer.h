// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "weft/optimizer.h"

namespace weft {

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
  bool decays(size_t parameter) const override { return decays_[parameter]; }

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
  /// True for each parameter to which weight decay applies.
  std::vector<bool> decays_;

 private:
  friend class Optimizer;
};

}  // namespace weft
