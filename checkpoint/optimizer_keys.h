// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "weft/state_dict.h"

namespace weft {

/// Names of an optimizer's parameters, in their order.
using ParameterNames = std::vector<std::string>;

/// Returns the names that the optimizer was given.
ParameterNames names_of(const Optimizer& optimizer);
/// Returns the modules' names, or the optimizer's name for a parameter that no module has.
ParameterNames names_in(const std::map<std::string, const Module*>& modules,
                        const Optimizer& optimizer);

/// The name of the optimizer whose state has these numbers, behind a prefix; empty where older
/// versions or custom optimizers saved none.
std::string saved_kind(const std::map<std::string, int64_t>& numbers, const std::string& prefix);

/// The keys of an optimizer's state. Checkpoints of different versions, and of optimizers with
/// different groups, have different ones.
class OptimizerKeys {
 public:
  using Numbers = std::map<std::string, int64_t>;

  /// Chooses those of `names` of which `saved` has most, or the numbers of the parameters; the
  /// first ones if it is empty.
  OptimizerKeys(Optimizer& optimizer, std::vector<ParameterNames> names, const Numbers& saved);

  /// The state: if there are saved numbers, with the options that these have. std::invalid_argument
  /// when two parameters have one name, and when parameters of one group were saved with different
  /// options.
  StateDict state() const;
  /// std::invalid_argument when the saved numbers are of another kind of optimizer.
  void check_kind() const;
  /// Sets the steps and options.
  void take(const Numbers& saved) const;

 private:
  /// The option of a parameter among the saved numbers, and its key; "" if it was not saved.
  std::pair<std::string, int64_t> saved_option(size_t parameter, const std::string& option) const;
  /// True when it was saved by the numbers of groups, as older versions did.
  bool is_numbered(const std::string& option) const;
  void add_options(Numbers& numbers) const;
  void add_saved_options(Numbers& numbers) const;

  Optimizer& optimizer_;
  ParameterNames names_;
  const Numbers saved_;
};

}  // namespace weft
