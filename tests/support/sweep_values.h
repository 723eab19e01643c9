// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "weft/op.h"
#include "weft/placement.h"

namespace weft {

/// Numbers that depend on nothing but the seed.
class SweepRandom {
 public:
  explicit SweepRandom(uint64_t seed) : state_(seed) {}
  uint64_t next();
  /// In [0, 1).
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

/// Values in [low, high). Floating ones are multiples of a power of two, so that the parts of a
/// Partial add up to them exactly.
SweepArray random_array(const Shape& shape, DType dtype, double low, double high, uint64_t seed);

/// Part `index` of `parts` whose reduction by `op` is `whole`: terms of both signs for a sum, one
/// rank that holds an element's value for max and min.
SweepArray part_of(const SweepArray& whole, ReduceOp op, int parts, int index);

/// The elements of `whole` in `box`, row-major.
std::vector<double> elements_of(const SweepArray& whole, const Box& box);

/// The samples of an op; made from its rule when it has none.
std::vector<OpSample> samples_of(const Op& op);

/// Operand `i` of a sample.
SweepArray operand_of(const OpSample& sample, size_t i, uint64_t seed);

/// Largest difference of results over the largest result, by dtype; 0: equal.
double bound_of(DType dtype);

/// "" when `actual` are the elements of `expected` in `box`; otherwise the worst element and by how
/// much it is off. `greatest` is of the whole.
std::string difference(const std::vector<double>& actual, const std::vector<double>& expected,
                       double greatest, double bound);

}  // namespace weft
