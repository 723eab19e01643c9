// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "mesh/plan.h"
#include "src/base/numeric.h"

namespace weft {

/// The layout of a 2-D tensor over a mesh, independent of weft's types so that tests can slice by
/// plain loops. `cuts` lists axis numbers, outermost first, when they are not in mesh order.
struct Lie {
  std::vector<Placement> placements;
  std::vector<std::vector<int>> cuts = {};

  std::vector<int> cutting(int dim) const {
    for (const std::vector<int>& order : cuts) {
      if (placements[static_cast<size_t>(order[0])].is_shard(dim)) return order;
    }
    std::vector<int> axes;
    for (size_t a = 0; a < placements.size(); ++a) {
      if (placements[a].is_shard(dim)) axes.push_back(static_cast<int>(a));
    }
    return axes;
  }

  /// The sharding on a mesh whose axes are called "0", "1", ...
  Sharding on(const DeviceMesh& mesh) const {
    Placements all{std::span<const Placement>(placements)};
    for (const std::vector<int>& order : cuts) {
      std::vector<std::string> names;
      for (int axis : order) names.push_back(std::to_string(axis));
      all = all.cut_in_order(placements[static_cast<size_t>(order[0])].dim(), names);
    }
    return Sharding(mesh, all);
  }

  /// The reduction of the Partial axes, or null.
  const Placement* partial() const {
    for (const Placement& placement : placements) {
      if (placement.is_partial()) return &placement;
    }
    return nullptr;
  }
};

/// Indices along one dim that the rank at `at` holds: for each axis, keeps this rank's run of the
/// remaining indices: ceil(n / k) of them, or the explicit size of its part.
inline std::vector<int64_t> indices(const Lie& lie, int dim, int64_t size,
                                    const std::vector<int>& mesh, const std::vector<int>& at) {
  std::vector<int64_t> held;
  for (int64_t i = 0; i < size; ++i) held.push_back(i);
  size_t part = 0;
  for (int axis : lie.cutting(dim)) {
    auto parts = static_cast<size_t>(mesh[static_cast<size_t>(axis)]);
    auto mine = static_cast<size_t>(at[static_cast<size_t>(axis)]);
    const auto sizes = lie.placements[static_cast<size_t>(axis)].sizes();
    size_t run = (held.size() + parts - 1) / parts;
    size_t begin = run * mine, end = begin + run;
    part *= parts;
    if (!sizes.empty()) {
      begin = 0;
      for (size_t i = 0; i < mine; ++i) begin += static_cast<size_t>(sizes[part + i]);
      end = begin + static_cast<size_t>(sizes[part + mine]);
    }
    part += mine;
    std::vector<int64_t> kept;
    for (size_t i = begin; i < end && i < held.size(); ++i) kept.push_back(held[i]);
    held = kept;
  }
  return held;
}

inline std::vector<int> coordinates_at(const std::vector<int>& mesh, int rank) {
  std::vector<int> at(mesh.size());
  for (size_t a = mesh.size(); a-- > 0; rank /= mesh[a]) at[a] = rank % mesh[a];
  return at;
}

/// The element of the whole tensor.
inline double whole_value(int64_t row, int64_t column) {
  return static_cast<double>((row * 7 + column * 3) % 9 - 4);
}

/// The value that the rank at `at` holds of an element of a Partial: integers, unevenly split,
/// whose reduction is the whole tensor's element.
inline double addend(const Lie& lie, const std::vector<int>& mesh, const std::vector<int>& at,
                     int64_t row, int64_t column) {
  const Placement* partial = lie.partial();
  double whole = whole_value(row, column);
  if (!partial) return whole;
  int members = 1, mine = 0;
  for (size_t a = 0; a < mesh.size(); ++a) {
    if (!lie.placements[a].is_partial()) continue;
    members *= mesh[a];
    mine = mine * mesh[a] + at[a];
  }
  auto other = [&](int member) { return static_cast<double>((row + 2 * column + member) % 5 - 1); };
  auto chosen = static_cast<int>((row + column) % members);
  double sign = partial->op() == ReduceOp::max ? -1 : 1;
  if (partial->op() == ReduceOp::max || partial->op() == ReduceOp::min) {
    return mine == chosen ? whole : whole + sign * (1 + static_cast<double>((row + mine) % 3));
  }
  if (partial->op() == ReduceOp::avg) whole *= members;
  if (mine != chosen) return other(mine);
  for (int member = 0; member < members; ++member) whole -= member == chosen ? 0 : other(member);
  return whole;
}

/// The elements that a rank holds.
inline std::vector<float> values_of(const Lie& lie, const Shape& shape,
                                    const std::vector<int>& mesh, int rank) {
  std::vector<float> values;
  const std::vector<int> at = coordinates_at(mesh, rank);
  for (int64_t row : indices(lie, 0, shape[0], mesh, at)) {
    for (int64_t column : indices(lie, 1, shape[1], mesh, at)) {
      values.push_back(static_cast<float>(addend(lie, mesh, at, row, column)));
    }
  }
  return values;
}

/// A 2-D layout over a mesh of these sizes.
struct LieOnMesh {
  std::vector<int> mesh;
  Lie lie;
};

inline std::vector<LieOnMesh> lies_on_meshes() {
  return {
      {{1}, {{Shard(0)}}},
      {{2}, {{Shard(0)}}},
      {{3}, {{Shard(0)}}},
      {{4}, {{Shard(0)}}},
      {{4}, {{Shard(1)}}},
      {{4}, {{Replicate()}}},
      {{2, 2}, {{Shard(0), Shard(1)}}},
      {{2, 2}, {{Shard(0), Shard(0)}, {{1, 0}}}},
      {{2, 2}, {{Partial(), Shard(0)}}},
      {{2, 2}, {{Shard(0), Replicate()}}},
      {{2, 1, 2}, {{Shard(1), Shard(1), Replicate()}}},
  };
}

inline double combined(ReduceOp op, double a, double b) {
  if (op == ReduceOp::max) return std::max(a, b);
  if (op == ReduceOp::min) return std::min(a, b);
  return a + b;
}

/// Stores one element of a dtype from a double.
inline void store(void* data, DType dtype, int64_t i, double value) {
  visit(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    static_cast<T*>(data)[i] = static_cast<T>(static_cast<float>(value));
  });
}
inline double load(const void* data, DType dtype, int64_t i) {
  return visit(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return static_cast<double>(static_cast<float>(static_cast<const T*>(data)[i]));
  });
}

}  // namespace weft
