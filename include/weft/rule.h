// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/export.h"
#include "weft/shape.h"

namespace weft {

// How the dims of an op's operands and results belong together, in factor notation:
//
//   "... m k, ... k n -> ... m n"   equal names are one factor; one that no result names is summed
//   "... v:max -> ..."              reduced by max (or min)
//   "... [d] -> ... [d]"            whole on each device
//   "... -> +v ..."                 a factor that the op creates; its size comes with the rule
//   "b s (h d) -> b s h d"          merged dims; a cut passes to h where chunk boundaries coincide
//   "a ~b -> a +c"                  the engine fetches the slice of b that a slice of c needs
//   "a b -> ."                      a result without dims; nothing after -> is no result
//
// `...` is any number of an operand's first dims, broadcast from the right.

/// Null when `text` is a rule; otherwise what is wrong with it.
constexpr const char* rule_mistake(std::string_view text);

/// A rule known when the program is compiled, and checked then.
class RuleLiteral {
 public:
  constexpr RuleLiteral() = default;
  consteval RuleLiteral(const char* text) : text_(text) {  // NOLINT(google-explicit-constructor)
    if (rule_mistake(text)) throw rule_mistake(text);      // not a constant: the compiler shows it
  }
  constexpr std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

/// A rule made at run time, with the sizes of factors that no operand tells (created ones, parts of
/// merged dims).
struct Rule {
  std::string text;
  std::vector<std::pair<std::string, int64_t>> sizes = {};
};

}  // namespace weft

#include "weft/rule_check.h"
