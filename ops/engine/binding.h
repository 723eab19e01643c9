// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "ops/engine/rule_parse.h"

namespace weft {

/// A rule with the sizes of a call: `...` is expanded to factors; a dim of size 1 that is broadcast
/// has none.
struct Binding {
  struct BoundFactor : Factor {
    int64_t size = -1;
  };
  using BoundDim = std::vector<int>;
  using BoundArray = std::vector<BoundDim>;

  std::vector<BoundFactor> factors;
  std::vector<BoundArray> operands;
  std::vector<BoundArray> results;
  std::vector<BoundArray> stages;
  std::vector<Shape> result_shapes;
  std::vector<Shape> stage_shapes;

  /// True when some dim of the array has the factor.
  static bool has(const BoundArray& array, int factor);
};

/// Binds a rule to shapes. std::invalid_argument names the op, the factor, both sizes and both
/// operands where they disagree.
Binding bind_rule(const std::string& op, const ParsedRule& rule,
                  std::span<const std::pair<std::string, int64_t>> sizes,
                  std::span<const Shape> shapes, std::span<const RuleArray> stages);

}  // namespace weft
