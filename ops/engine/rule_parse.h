// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "weft/extend/rule.h"
#include "weft/placement.h"

namespace weft {

/// A named factor of a rule.
struct Factor {
  std::string name;
  /// `[d]`: never sharded.
  bool whole = false;
  /// `+v`: no operand has it.
  bool created = false;
  /// `~b`: an operand's dim that is fetched in slices.
  bool fetched = false;
  /// How ranks' partial results are reduced if no result has the factor.
  ReduceOp reduce = ReduceOp::sum;
};

/// One dim of an array: its factors, outermost first; `...` has none.
struct RuleDim {
  std::vector<int> factors;
  bool ellipsis = false;
};

using RuleArray = std::vector<RuleDim>;

struct ParsedRule {
  std::string text;
  std::vector<Factor> factors;
  std::vector<RuleArray> operands;
  std::vector<RuleArray> results;

  /// Returns the factor's index, or -1 if the rule lacks it.
  int find(std::string_view name) const;
};

/// Parses a rule. std::invalid_argument names `op` and what is wrong with the text.
ParsedRule parse_rule(const std::string& op, std::string_view text);

/// Parses one more array of a rule, e.g. a stage's result ("...", "a b", ".").
RuleArray parse_array(ParsedRule& rule, std::string_view text);

}  // namespace weft
