// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <optional>

#include "ops/engine/binding.h"
#include "weft/extend/op.h"

namespace weft {

inline constexpr int kMaxOperands = 16;
inline constexpr int kMaxResults = 4;

/// A rule ready to be bound to shapes.
struct ReadyRule {
  ParsedRule rule;
  std::vector<std::pair<std::string, int64_t>> sizes;
  std::vector<RuleArray> stages;
  /// Factors that stages reduce over.
  std::vector<int> staged;
  /// Rows and the entries that they belong to; -1 without.
  std::pair<int, int> joined = {-1, -1};
};

/// The data behind an Op.
struct OpBody {
  OpSpec spec;
  uint32_t id;
  /// The rule of an op whose dims do not depend on attributes.
  std::optional<ReadyRule> fixed_rule;
  uint32_t saved_in;
  uint32_t saved_out;
  /// Operands that forward takes dense.
  uint32_t dense_in;
};

/// Returns what forward takes as operand i.
inline const Takes& taken(const OpSpec& spec, size_t i) {
  return spec.takes[std::min(i, spec.takes.size() - 1)];
}

ReadyRule rule_for(const OpBody& op, const Attributes& attributes, std::span<const Shape> shapes);

}  // namespace weft
