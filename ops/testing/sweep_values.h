// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

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

}  // namespace weft
