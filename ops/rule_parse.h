// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "weft/placement.h"
#include "weft/rule.h"

namespace weft {

/// A name of a rule.
struct Factor {
  std::string name;
  /// `[d]`: never cut.
  bool whole = false;
  /// `+v`: no operand has it.
  bool created = false;
  /// `~b`: an operand's dim that is fetched in slices.
  bool fetched = false;
  /// How ranks' results become one where no result names the factor.
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

  /// The factor's index, -1 when there is none of that name.
  int find(std::string_view name) const;
};

/// std::invalid_argument naming `op` and what is wrong with the text.
ParsedRule parse_rule(const std::string& op, std::string_view text);

/// One array of the same rule, e.g. a stage's result ("...", "a b", ".").
RuleArray parse_array(ParsedRule& rule, std::string_view text);

}  // namespace weft
