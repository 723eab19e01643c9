// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "weft/optimizers.h"

namespace weft {

/// Parameters that a regular expression (ECMAScript) finds in a name, and their options.
template <class Options> using PatternOptions = std::pair<std::string, Options>;

/// The predicate of `no_decay`: what its pattern finds in a name.
struct WEFT_API NoDecay {
  std::string pattern;
  std::function<bool(const std::string& name)> finds;
  bool vectors = true;
  bool operator()(const NamedParameter& named) const;
};

/// A predicate for `decays`: false for parameters in one of whose names the regular expression
/// finds something and, if `vectors`, for those of fewer than 2 dims. An empty pattern finds
/// nothing; optimizers refuse another one that finds none of their parameters.
/// std::invalid_argument for what is no regular expression.
WEFT_API DecayPredicate no_decay(const std::string& pattern, bool vectors = true);

/// std::invalid_argument unless the pattern, if there is one, finds a parameter.
WEFT_API void check_no_decay(const NoDecay& predicate,
                             const std::vector<NamedParameter>& parameters);

/// Splits parameters by patterns: part i has those of pattern i that no pattern before finds, the
/// last part has the others. std::invalid_argument when a pattern finds none, because ranks and
/// checkpoints count groups, or is no regular expression.
WEFT_API std::vector<std::vector<NamedParameter>> split_by_patterns(
    const std::vector<NamedParameter>& parameters, const std::vector<std::string>& patterns);

/// Returns a group for each pattern with its options, and one, if any are left, with `others`.
template <class Options>
std::vector<ParameterGroup<Options>> groups_by_pattern(
    const std::vector<NamedParameter>& parameters,
    const std::vector<PatternOptions<Options>>& patterns, const Options& others = {}) {
  std::vector<std::string> names;
  for (const auto& [pattern, options] : patterns) names.push_back(pattern);
  auto parts = split_by_patterns(parameters, names);
  std::vector<ParameterGroup<Options>> groups;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool is_rest = i == patterns.size();
    if (is_rest && parts[i].empty()) continue;
    groups.push_back({std::move(parts[i]), is_rest ? others : patterns[i].second});
  }
  return groups;
}

}  // namespace weft
