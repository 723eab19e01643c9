// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "mesh/plan.h"
#include "ops/engine/route.h"
#include "weft/extend/op.h"
#include "weft/placement.h"

namespace weft {

/// Random numbers that depend only on the seed.
class SweepRandom {
 public:
  explicit SweepRandom(uint64_t seed) : state_(seed) {}
  uint64_t next();
  /// Returns a number in [0, 1).
  double fraction() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }

 private:
  uint64_t state_;
};

/// A whole tensor as plain numbers, row-major.
struct SweepArray {
  Shape shape;
  DType dtype = DType::f32;
  std::vector<double> values;
  double greatest() const;
};

/// Returns it as a tensor of one device, or this rank's part of it.
Tensor tensor_of(const SweepArray& array, Device device = cpu, const Sharding& sharding = {});

/// This rank's part of `whole` with that sharding, on `device`.
Tensor laid_out(const SweepArray& whole, const Sharding& sharding, Device device);

/// Returns values in [low, high). Floating values are multiples of a power of two, so that the
/// parts of a Partial add up to them exactly.
SweepArray random_array(const Shape& shape, DType dtype, double low, double high, uint64_t seed);

/// Returns part `index` of `parts` whose reduction by `op` is `whole`: terms of both signs for a
/// sum; for max and min, one rank holds an element's value.
SweepArray part_of(const SweepArray& whole, ReduceOp op, int parts, int index);

/// Returns the elements of `whole` in `box`, row-major.
std::vector<double> elements_of(const SweepArray& whole, const Box& box);

/// Returns the samples of an op; made from its rule when it has none.
std::vector<OpSample> samples_of(const Op& op);

/// Returns operand `i` of a sample.
SweepArray operand_of(const OpSample& sample, size_t i, uint64_t seed);

/// The largest allowed difference of results, relative to the largest result, by dtype; 0: equal.
double bound_of(DType dtype);

/// Returns "" when `actual` equals the elements of `expected` in `box`, otherwise a text with the
/// worst element and its error. `greatest` is the largest value of the whole tensor.
std::string difference(const std::vector<double>& actual, const std::vector<double>& expected,
                       double greatest, double bound);

/// Returns all ways to lay out a tensor of `ndim` dims over the mesh: every placement on every
/// axis, Partials of one kind that the dtype supports, and both orders where several axes shard a
/// dim.
std::vector<Sharding> all_shardings(const DeviceMesh& mesh, int ndim, DType dtype);

/// Returns layouts whose parts have explicit sizes (uneven ones and empty ones, over one axis and
/// over all) or cut inner factors, next to some others: replicated, cut into chunks, Partial.
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
