// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "ops/engine/choose.h"

namespace weft {

/// The role of one mesh axis in an op: none, cuts a factor, or passes a Partial on.
struct AxisChoice {
  enum class Kind : uint8_t { whole, cut, partial } kind = Kind::whole;
  int factor = -1;
  /// A second factor that the axis cuts together with it: the entries of rows.
  int with = -1;
  /// Index of the linear set whose operands are Partial, and their reduction.
  int set = -1;
  ReduceOp op = ReduceOp::sum;
};

/// Returns the roles that axis `axis` can have by itself, "none" first.
std::vector<AxisChoice> choices_for_axis(const ChoiceQuery& query, int axis);

/// Returns the layouts that the axes' roles give; nullopt if they are incompatible. Factors are cut
/// into the parts of operand `sized`, whose sharding has explicit sizes, where the same axes cut
/// them there, otherwise (and everywhere for -1) into chunks.
std::optional<Choice> combine(const ChoiceQuery& query, const DeviceMesh& mesh,
                              std::span<const AxisChoice> axes, int sized);

/// Returns the first dim of an operand that is fetched, or -1.
int fetched_dim(const Binding& binding, size_t operand);
inline bool is_fetched(const Binding& binding, size_t operand) {
  return fetched_dim(binding, operand) >= 0;
}

}  // namespace weft
