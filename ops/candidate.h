// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "ops/choose.h"

namespace weft {

/// What one mesh axis does in an op: nothing, cut a factor, or let a Partial pass.
struct AxisChoice {
  enum class Kind : uint8_t { whole, cut, partial } kind = Kind::whole;
  int factor = -1;
  /// Index of the linear set whose operands are Partial, and the reduction.
  int set = -1;
  ReduceOp op = ReduceOp::sum;
};

/// What axis `axis` can do by itself, "nothing" first.
std::vector<AxisChoice> choices_for_axis(const ChoiceQuery& query, int axis);

/// The layouts that the axes' choices give; nothing when they do not go together.
std::optional<Choice> combine(const ChoiceQuery& query, const DeviceMesh& mesh,
                              std::span<const AxisChoice> axes);

/// True when operand `operand` has a dim that is fetched.
bool is_fetched(const Binding& binding, size_t operand);

}  // namespace weft
