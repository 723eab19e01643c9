// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include "src/device/kernel/elements.h"
#include "weft/block.h"

namespace weft {

/// The memory layout of an Array.
enum class Lie { dense, transposed, gaps };
inline constexpr Lie kLies[] = {Lie::dense, Lie::transposed, Lie::gaps};

/// Memory for a test with a MemoryBlock over it; reads and writes its elements as doubles.
class Array {
 public:
  Array(DType dtype, const Shape& shape, Lie lie = Lie::dense) {
    Shape room = shape;
    for (int i = 0; i < room.ndim() && lie == Lie::gaps; ++i) room[i] += 2;
    Strides strides = dense_strides(room);
    if (lie == Lie::transposed) {
      int64_t stride = 1;
      for (int i = 0; i < shape.ndim(); ++i) {
        strides[i] = stride;
        stride *= shape[i];
      }
    }
    memory_.resize(static_cast<size_t>(room.product()) * size_of(dtype) + 64);
    block = {memory_.data(), dtype, cpu, shape, strides};
  }

  /// Random numbers in [low, high), each exact in the dtype.
  static Array random(DType dtype, const Shape& shape, Lie lie = Lie::dense, unsigned seed = 1,
                      double low = -3, double high = 3) {
    Array array(dtype, shape, lie);
    std::mt19937 engine(seed);
    std::uniform_real_distribution<double> uniform(low, high);
    std::vector<double> values(static_cast<size_t>(shape.product()));
    for (double& value : values) value = uniform(engine);
    array.set(values);
    return array;
  }

  static Array of(DType dtype, const Shape& shape, const std::vector<double>& values) {
    Array array(dtype, shape);
    array.set(values);
    return array;
  }

  /// Address of element i in row-major order of the shape.
  void* at(int64_t i) const {
    int64_t offset = 0;
    for (int d = block.shape.ndim() - 1; d >= 0; --d) {
      offset += i % block.shape[d] * block.strides[d];
      i /= block.shape[d];
    }
    return block.as<char>() + offset * static_cast<int64_t>(size_of(block.dtype));
  }
  double operator[](int64_t i) const { return load_element<double>(at(i), block.dtype, 0); }
  void set(const std::vector<double>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      store_element<double>(at(static_cast<int64_t>(i)), block.dtype, 0, values[i]);
    }
  }
  std::vector<double> values() const {
    std::vector<double> values(static_cast<size_t>(block.numel()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = (*this)[static_cast<int64_t>(i)];
    return values;
  }

  MemoryBlock block;

 private:
  std::vector<std::byte> memory_;
};

/// Columns [begin, end) of a matrix.
inline MemoryBlock columns(const Array& array, int64_t begin, int64_t end) {
  return array.block.part({{0, begin}, {array.block.shape[0], end - begin}});
}

/// Checks for equality up to `bound` times the greatest value of `expected`, or `scale` if that is
/// greater (NaN equals NaN).
inline void expect_near(const std::vector<double>& got, const std::vector<double>& expected,
                        double bound, double scale = 0) {
  ASSERT_EQ(got.size(), expected.size());
  double greatest = scale;
  for (double x : expected) {
    if (std::isfinite(x)) greatest = std::max(greatest, std::fabs(x));
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << "element " << i << " is " << got[i];
    } else if (got[i] != expected[i]) {
      EXPECT_LE(std::fabs(got[i] - expected[i]), bound * greatest)
          << "element " << i << " is " << got[i] << ", not " << expected[i];
    }
  }
}

/// Relative rounding error of results in a dtype.
inline double rounding(DType dtype) {
  switch (dtype) {
    case DType::bf16: return 0x1p-8;
    case DType::f16: return 0x1p-11;
    case DType::f32: return 0x1p-20;
    case DType::f64: return 0x1p-46;
    default: return 0;
  }
}

}  // namespace weft
