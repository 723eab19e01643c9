// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "mesh/layout.h"
#include "ops/binding.h"
#include "weft/op.h"

namespace weft {

/// All ways to lay out a tensor of `ndim` dims over the mesh: every placement on every axis,
/// Partials of one kind that the dtype can have, and both orders where several axes cut a dim.
std::vector<Sharding> all_shardings(const DeviceMesh& mesh, int ndim, DType dtype);

/// Calls `visit` with combinations of one choice of each operand, `counts` of them: all where there
/// are at most `most`, otherwise enough that every two choices of two operands meet. Of those about
/// `percent` in 100, by the seed.
struct SweepCombinations {
  std::vector<size_t> counts;
  int64_t most = 0;
  int percent = 100;
  uint64_t seed = 0;

  int64_t all() const;
  void visit(const std::function<void(std::span<const size_t>)>& visit) const;
};

/// What the rule says about operands laid out like that: nothing, that no byte crosses ranks, or
/// that no operand is touched.
enum class SweepTraffic { any, none, untouched };

/// Worked out from the rule by itself, one axis at a time; `any` where it would need more than
/// that.
SweepTraffic traffic_by_rule(const OpSpec& spec, const Binding& binding,
                             std::span<const int> staged, std::span<const Sharding> operands);

}  // namespace weft
