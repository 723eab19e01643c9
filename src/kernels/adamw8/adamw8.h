// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>

#include "src/base/numeric.h"
#include "src/kernels/adamw/adamw.h"
#include "src/kernels/kernel.h"

// AdamW with moments of 8 bits: floats without an infinity, relative to the greatest magnitude of
// their block of columns.

namespace weft {

inline constexpr int64_t kAdamW8Block = 128;

/// The arrays of a step, dense. Codes and gradient have the shape [rows, columns] of the parameter,
/// scales [rows, blocks]. The new scales are written before the step, without a parameter, or read
/// by it.
struct AdamW8Blocks {
  MemoryBlock parameter = {}, grad = {}, factor = {}, m, v, m_scales, v_scales, new_m_scales,
              new_v_scales;
  /// The column of the first element in the matrix whose blocks the scales are of.
  int64_t first_column = 0;
};
/// std::invalid_argument for arrays with strides, and codes or scales of another dtype than theirs.
void check_blocks(const AdamW8Blocks& blocks);
inline bool is_on_gpu(const AdamW8Blocks& blocks) { return is_on_gpu(blocks.grad); }

/// Part of a row that lies in one block: columns [begin, end) of the part of the matrix.
struct AdamW8Part {
  int64_t row, block, begin, end;
};

inline namespace WEFT_COMPILER {

/// The least and the last block in which a part of a matrix has columns.
struct AdamW8Grid {
  int64_t first_column, columns, first_block, blocks;

  WEFT_FN AdamW8Part at(int64_t i) const {
    const int64_t row = i / blocks, block = first_block + i % blocks;
    const int64_t begin = block * kAdamW8Block - first_column, end = begin + kAdamW8Block;
    return {row, block, begin > 0 ? begin : 0, end < columns ? end : columns};
  }
};

inline AdamW8Grid grid_of(const AdamW8Blocks& blocks) {
  const int64_t columns = blocks.grad.shape[1], first = blocks.first_column;
  const int64_t last_block = (first + columns - 1) / kAdamW8Block;
  return {first, columns, first / kAdamW8Block, last_block - first / kAdamW8Block + 1};
}

/// A code has kExponent bits of exponent and 3 of mantissa; the greatest one is 1.875.
template <int kExponent> struct Code8 {
  static constexpr uint32_t kMost = (8u << kExponent) - 1;
  static constexpr uint32_t kTop = (1u << kExponent) - 1;
  /// 1 / 8 of the least normal code, 2^(1 - kTop), is the step below it.
  static constexpr float kStep = std::bit_cast<float>((127 + 1 - kTop - 3) << 23);

  WEFT_FN static uint32_t nearest(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    const uint32_t normal = ((bits + 0x7ffffu + (bits >> 20 & 1u)) >> 20) - ((127 - kTop) << 3);
    const bool is_small = x < 8 * kStep;
    const auto small = static_cast<uint32_t>((is_small ? x : 0.0f) * (1 / kStep) + 0.5f);
    const uint32_t code = is_small ? small : normal;
    return code < kMost ? code : kMost;
  }
  WEFT_FN static float value(uint32_t code) {
    const float normal = std::bit_cast<float>((code + ((127 - kTop) << 3)) << 20);
    return code < 8 ? static_cast<float>(code) * kStep : normal;
  }
};
using CodeOfM = Code8<4>;
using CodeOfV = Code8<5>;

WEFT_FN inline float m_of(uint8_t code, float unit) {
  const float size = CodeOfM::value(code & 0x7fu) * unit;
  return code & 0x80u ? -size : size;
}
WEFT_FN inline float v_of(uint8_t code, float unit) { return CodeOfV::value(code) * unit; }

WEFT_FN inline uint8_t m_code(float m, float factor) {
  const uint32_t code = CodeOfM::nearest((m < 0 ? -m : m) * factor);
  return static_cast<uint8_t>(code | (m < 0 ? 0x80u : 0u));
}
/// A v above 0 has a code above 0: steps divide by its root.
WEFT_FN inline uint8_t v_code(float v, float factor) {
  const uint32_t code = CodeOfV::nearest(v * factor);
  return static_cast<uint8_t>(code == 0 && v > 0 ? 1u : code);
}

/// Factors that map a code to its number, and a number to its code; the greatest number is `scale`.
WEFT_FN inline float unit_of(float scale) { return scale * (1 / 1.875f); }
WEFT_FN inline float factor_of(float scale) { return scale < 0x1p-120f ? 0.0f : 1.875f / scale; }

/// One step of f32 for one element, as AdamWElement.
struct AdamW8Element {
  float decay, of_gradient, beta2, of_square, rate, root_correction, eps;

  WEFT_FN void moments(float& m, float& v, float g) const {
    m = m + (g - m) * of_gradient;
    v = v * beta2 + g * g * of_square;
  }
  WEFT_FN float moved(float p, float m, float v) const {
    return p * decay - rate * m / (sqrtf(v) * root_correction + eps);
  }
};

}  // namespace WEFT_COMPILER

inline AdamW8Element element8_of(const AdamWNumbers& numbers) {
  const auto rates = rates_of(numbers);
  return {static_cast<float>(rates[0]),      static_cast<float>(1 - numbers.beta1),
          static_cast<float>(numbers.beta2), static_cast<float>(1 - numbers.beta2),
          static_cast<float>(rates[1]),      static_cast<float>(rates[2]),
          static_cast<float>(numbers.eps)};
}

/// Performs one step in place, or finds its new scales if there is no parameter. The gradient and
/// the parameter have any floating dtype.
WEFT_KERNEL(void, adamw8, (const AdamW8Blocks& blocks, const AdamWNumbers& numbers),
            (blocks, numbers))

}  // namespace weft
