// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "mesh/layout.h"
#include "ops/engine/binding.h"
#include "weft/extend/op.h"

namespace weft {

/// The properties of an op call that determine its layouts.
struct ChoiceQuery {
  /// Name of the op, for errors.
  const std::string& name;
  const Binding& binding;
  std::span<const Ref<Layout>> operands;
  std::span<const DType> result_dtypes;
  std::span<const std::vector<int>> linear;
  /// Factors over which stages reduce: cutting them does not make results Partial.
  std::span<const int> staged;
  /// Operands that must keep their layout.
  std::span<const int> pinned;
  /// Returns the slice of operand i (with ~ dims) that a slice of result 0 needs.
  std::function<Box(int operand, const Box& result)> needs;
  /// The dim that is read or written by index; null without one.
  const ByIndex* by_index = nullptr;
  /// Factors that an axis may cut together: rows and the entries that they belong to; -1 without.
  std::pair<int, int> joined = {-1, -1};
};

/// The layouts to compute in. For an operand with ~ dims: the layout from which slices are fetched.
struct Choice {
  std::vector<Sharding> operands;
  std::vector<Sharding> results;
  std::vector<Sharding> stages;
  /// True when a staged factor is cut.
  bool staged = false;
};

/// Returns the allowed layouts of least predicted time, jointly over the axes of the mesh; ties
/// keep operands as they are. All operands are laid out over the same mesh. Equal on all ranks.
/// std::invalid_argument when no layout allows the operands that are changed in place.
Choice choose_layouts(const ChoiceQuery& query, const DeviceMesh& mesh);

}  // namespace weft
