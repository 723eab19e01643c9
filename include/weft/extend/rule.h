// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/export.h"
#include "weft/shape.h"

namespace weft {

// Rules state how the dims of an op's operands and results correspond, in factor notation:
//
//   "... m k, ... k n -> ... m n"   equal names are one factor; one that no result has is summed
//   "... v:max -> ..."              the factor is reduced by max (or min)
//   "... [d] -> ... [d]"            never sharded: whole on each device
//   "... -> +v ..."                 the op creates the factor; its size comes with the rule
//   "b s (h d) -> b s h d"          merged dims; a cut passes to h, and to d as one of an inner
//   factor "a ~b -> a +c"                  the engine fetches the slice of b that a slice of c
//   needs "a b -> ."                      a result without dims; an empty right side: no result
//
// `...` stands for any number of leading dims of an operand, which broadcast from the right.

/// Throws what is wrong with `text` as a rule, a `const char*`.
constexpr void check_rule(std::string_view text);

/// A rule that is known and checked at compile time.
class RuleLiteral {
 public:
  constexpr RuleLiteral() = default;
  consteval RuleLiteral(const char* text) : text_(text) {  // NOLINT(google-explicit-constructor)
    check_rule(text);
  }
  constexpr std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

/// A rule made at run time, with the sizes of factors that do not follow from the operands (created
/// ones, parts of merged dims).
struct Rule {
  std::string text;
  std::vector<std::pair<std::string, int64_t>> sizes = {};
  /// Two factors: rows, and the entries that they belong to, such as experts. The caller has
  /// checked that, along every axis that cuts both in the operands, each rank holds the rows of its
  /// own entries: such an axis may keep both cuts.
  std::pair<std::string, std::string> joined = {};
};

}  // namespace weft

#include "weft/extend/rule_check.h"
