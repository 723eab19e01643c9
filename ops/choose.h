// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "mesh/layout.h"
#include "ops/binding.h"

namespace weft {

/// What a route must know of an op to choose layouts.
struct ChoiceQuery {
  /// The op's, for errors.
  const std::string& name;
  const Binding& binding;
  std::span<const Ref<Layout>> operands;
  std::span<const DType> result_dtypes;
  std::span<const std::vector<int>> linear;
  /// Factors over which stages reduce: a cut of them leaves results whole.
  std::span<const int> staged;
  /// Operands that must stay as they are.
  std::span<const int> pinned;
  /// Slices of operand i (with ~ dims) that a slice of result 0 needs.
  std::function<Box(int operand, const Box& result)> needs;
};

/// The layouts to compute in. An operand with ~ dims has the layout from which slices are fetched.
struct Choice {
  std::vector<Sharding> operands;
  std::vector<Sharding> results;
  std::vector<Sharding> stages;
  /// A staged factor is cut.
  bool staged = false;
};

/// The allowed layouts of least predicted time, jointly over the axes of the mesh; ties keep
/// operands as they are. All operands are laid out over the same mesh. Equal on all ranks.
/// std::invalid_argument when operands that are changed in place do not go together.
Choice choose_layouts(const ChoiceQuery& query, const DeviceMesh& mesh);

}  // namespace weft
