// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
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

/// True when all operands and results that have a factor divide it into the same parts. Where no
/// part has an explicit size, the rules of cuts ensure it.
bool parts_agree(const ChoiceQuery& query, const Choice& choice);

/// True when all operands that have one of the joined factors are cut along it as they were given:
/// only then does each rank hold the rows that its entries name.
bool keeps_joined(const ChoiceQuery& query, const Choice& choice);

/// True when `size * inner` elements cut into `parts` have the boundaries of `size` cut into them.
bool boundaries_coincide(int64_t size, int64_t inner, std::span<const int> parts);

}  // namespace weft
