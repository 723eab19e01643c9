// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "mesh/layout.h"
#include "ops/engine/binding.h"
#include "weft/extend/op.h"

namespace weft {

/// Returns all ways to lay out a tensor of `ndim` dims over the mesh: every placement on every
/// axis, Partials of one kind that the dtype supports, and both orders where several axes shard a
/// dim.
std::vector<Sharding> all_shardings(const DeviceMesh& mesh, int ndim, DType dtype);

/// Returns layouts whose parts have explicit sizes (uneven ones and empty ones, over one axis and
/// over all), next to some without: replicated, cut into chunks, Partial.
std::vector<Sharding> sized_shardings(const DeviceMesh& mesh, const Shape& shape, DType dtype);

/// Calls `visit` with combinations of one choice for each operand, `counts` of them: all if there
/// are at most `most`, otherwise enough that every two choices of two operands occur together.
/// About `percent` in 100 of these are visited, selected by the seed.
struct SweepCombinations {
  std::vector<size_t> counts;
  int64_t most = 0;
  int percent = 100;
  uint64_t seed = 0;

  int64_t all() const;
  void visit(const std::function<void(std::span<const size_t>)>& visit) const;
};

/// The prediction of the rule for operands of a given layout: nothing, that no byte crosses ranks,
/// or that no operand is touched.
enum class SweepTraffic { any, none, untouched };

/// Derives the traffic from the rule by itself, one axis at a time; `any` where more would be
/// needed.
SweepTraffic traffic_by_rule(const OpSpec& spec, const Binding& binding,
                             std::span<const int> staged, std::span<const Sharding> operands);

}  // namespace weft
