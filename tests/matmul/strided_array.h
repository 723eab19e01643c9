// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "src/base/numeric.h"
#include "weft/block.h"

namespace weft {

/// Memory with a block whose dims are in any order in memory, with gaps between them.
class StridedArray {
 public:
  /// `order` names the dims from the outermost in memory to the innermost; each gets `gap` elements
  /// more than it needs (the innermost dim, none).
  StridedArray(DType dtype, const Shape& shape, const std::vector<int>& order = {},
               int64_t gap = 0) {
    block_ = dense_block(nullptr, dtype, shape);
    int64_t stride = 1;
    for (int i = shape.ndim() - 1; i >= 0; --i) {
      const int dim = order.empty() ? i : order[static_cast<size_t>(i)];
      block_.strides[dim] = stride;
      stride *= std::max<int64_t>(shape[dim], 1) + gap;
    }
    elements_ = stride + 1;
    memory_.resize(static_cast<size_t>(elements_) * size_of(dtype) + 64);
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    block_.data = memory_.data() + (64 - address % 64) % 64;
    for (int64_t i = 0; i < elements_; ++i) set(i, kUntouched);
  }
  StridedArray(StridedArray&&) = default;

  const MemoryBlock& block() const { return block_; }
  int64_t numel() const { return block_.numel(); }

  /// Offset of the element with that row-major index.
  int64_t offset(int64_t index) const {
    int64_t at = 0;
    for (int i = block_.shape.ndim() - 1; i >= 0; --i) {
      at += index % block_.shape[i] * block_.strides[i];
      index /= block_.shape[i];
    }
    return at;
  }
  double at(int64_t index) const { return get(offset(index)); }
  void set_at(int64_t index, double value) { set(offset(index), value); }

  /// Random numbers: small integers for integer dtypes, else of [-1, 1].
  void randomize(std::mt19937& random) {
    const bool whole = !is_floating(block_.dtype);
    for (int64_t i = 0; i < numel(); ++i) {
      const double x = static_cast<double>(random() % 2001) / 1000 - 1;
      set_at(i, whole ? std::floor(x * 4 + 4) : x);
    }
  }
  void fill(double value) {
    for (int64_t i = 0; i < numel(); ++i) set_at(i, value);
  }
  std::vector<double> values() const {
    std::vector<double> all;
    for (int64_t i = 0; i < numel(); ++i) all.push_back(at(i));
    return all;
  }
  /// True when all memory between the block's elements is unchanged.
  bool gaps_untouched() const {
    std::vector<bool> own(static_cast<size_t>(elements_));
    for (int64_t i = 0; i < numel(); ++i) own[static_cast<size_t>(offset(i))] = true;
    for (int64_t i = 0; i < elements_; ++i) {
      if (!own[static_cast<size_t>(i)] && get(i) != kUntouched) return false;
    }
    return true;
  }

 private:
  static constexpr double kUntouched = 77;  // exact in every dtype

  double get(int64_t at) const {
    return visit(block_.dtype,
                 [&]<class T>(Type<T>) { return static_cast<double>(block_.as<T>()[at]); });
  }
  void set(int64_t at, double value) {
    visit(block_.dtype, [&]<class T>(Type<T>) {
      if constexpr (is_half<T>) {
        block_.as<T>()[at] = T(static_cast<float>(value));
      } else {
        block_.as<T>()[at] = static_cast<T>(value);
      }
    });
  }

  MemoryBlock block_;
  int64_t elements_ = 0;
  std::vector<unsigned char> memory_;
};

/// max|value - expected| / max|expected|, with a denominator of at least 1e-30; infinite when only
/// one of the two is finite.
inline double relative_difference(const std::vector<double>& values,
                                  const std::vector<double>& expected) {
  double most = 0, scale = 1e-30;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (values[i] == expected[i]) continue;
    const double difference = std::fabs(values[i] - expected[i]);
    most = std::isfinite(difference) ? std::max(most, difference)
                                     : std::numeric_limits<double>::infinity();
  }
  for (const double x : expected) {
    if (std::isfinite(x)) scale = std::max(scale, std::fabs(x));
  }
  return values.size() == expected.size() ? most / scale : std::numeric_limits<double>::infinity();
}

/// Relative tolerance for one rounding of a dtype's results.
inline double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return 2e-6;
    case DType::bf16: return 8e-3;
    case DType::f16: return 1e-3;
    case DType::f64: return 1e-14;
    default: return 0;
  }
}

}  // namespace weft
