// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/extend/op.h"
#include "weft/extend/rule.h"
#include "weft/placement.h"

namespace weft {

using rule_grammar::Factor;
using rule_grammar::parse_array;
using rule_grammar::ParsedRule;
using rule_grammar::RuleArray;
using rule_grammar::RuleDim;

/// Parses a rule. std::invalid_argument names `op` and what is wrong with the text.
ParsedRule parse_rule(const std::string& op, std::string_view text);

inline bool contains(std::span<const int> numbers, int number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

/// A rule with the sizes of a call: `...` is expanded to factors; a dim of size 1 that is broadcast
/// has none.
struct Binding {
  using BoundDim = std::vector<int>;
  using BoundArray = std::vector<BoundDim>;

  std::vector<Factor> factors;
  std::vector<BoundArray> operands;
  std::vector<BoundArray> results;
  std::vector<BoundArray> stages;
  std::vector<Shape> result_shapes;
  std::vector<Shape> stage_shapes;

  const Factor& factor(int i) const { return factors[static_cast<size_t>(i)]; }
  /// Returns the dim of the array that has the factor, or -1.
  static int dim_of(const BoundArray& array, int factor);
  bool is_fetched(const BoundDim& dim) const { return dim.size() == 1 && factor(dim[0]).fetched; }
  static bool has(const BoundArray& array, int factor) { return dim_of(array, factor) >= 0; }
};

/// Binds a rule to shapes. std::invalid_argument names the op, the factor, both sizes and both
/// operands where they disagree.
Binding bind_rule(const std::string& op, const ParsedRule& rule, std::span<const Shape> shapes);

inline constexpr int kMaxOperands = 16;
inline constexpr int kMaxResults = 4;

/// The data behind an Op.
struct OpBody {
  OpSpec spec;
  uint32_t id;
  /// The rule of an op whose dims do not depend on attributes.
  std::optional<ParsedRule> fixed_rule;
  uint32_t saved_in;
  uint32_t saved_out;
  /// Operands that forward takes dense.
  uint32_t dense_in;
};

/// Returns what forward takes as operand i.
inline const Takes& taken(const OpSpec& spec, size_t i) {
  return spec.takes[std::min(i, spec.takes.size() - 1)];
}

ParsedRule rule_for(const OpBody& op, const Attributes& attributes, std::span<const Shape> shapes);

}  // namespace weft
