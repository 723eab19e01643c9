// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>

#include "src/base/numeric.h"
#include "src/kernels/kernel.h"
#include "src/kernels/math/philox.h"
#include "weft/extend/quantize.h"

namespace weft {

inline namespace WEFT_COMPILER {

/// Calls visitor(Type<T>{}) with T the type of codes of a dtype.
template <class Visitor> void visit_codes(DType dtype, const Visitor& visitor) {
  switch (dtype) {
    case DType::i8: return visitor(Type<int8_t>{});
    case DType::f8_e4m3: return visitor(Type<float8_e4m3>{});
    case DType::bf16: return visitor(Type<bfloat16>{});
    default: fail("quantize: dtype of codes is ", dtype, ", expected i8, f8_e4m3 or bf16");
  }
}

/// True when codes have scales, and the greatest code.
template <class Code> inline constexpr bool kIsScaled = sizeof(Code) == 1;
template <class Code>
inline constexpr float kGreatestCode = std::is_same_v<Code, int8_t> ? 127.0f : 448.0f;

/// Bits of |x|, whose order as integers is that of magnitudes, with NaN above infinity.
WEFT_FN inline uint32_t magnitude_bits(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; }

/// The scale of a block, and the factor that maps its elements to codes; 0 where all codes are 0.
struct BlockScale {
  float scale = 1, factor = 1;
};

template <class Code> WEFT_FN BlockScale block_scale(uint32_t greatest_bits) {
  if constexpr (!kIsScaled<Code>) return {};
  const float scale = std::bit_cast<float>(greatest_bits) / kGreatestCode<Code>;
  if (greatest_bits >= 0x7f800000u) return {std::bit_cast<float>(0x7fc00000u), 0.0f};
  // The reciprocal of a denormal may be infinite.
  if (scale < 0x1p-126f) return {0.0f, 0.0f};
  return {scale, 1 / scale};
}

/// The code of a scaled element, rounded to nearest.
template <class Code> WEFT_FN Code nearest_code(float scaled) {
  if constexpr (std::is_same_v<Code, int8_t>) {
    const float whole = std::nearbyint(scaled);
    return static_cast<int8_t>(whole > 127 ? 127 : whole < -127 ? -127 : whole);
  } else {
    return Code(scaled);
  }
}

/// Rounded up with the probability of the part that is cut off, by a random word.
template <class Code> WEFT_FN Code stochastic_code(float scaled, uint32_t word) {
  if constexpr (std::is_same_v<Code, int8_t>) {
    const float whole = std::floor(scaled + unit(word));
    return static_cast<int8_t>(whole > 127 ? 127 : whole < -127 ? -127 : whole);
  } else if constexpr (std::is_same_v<Code, bfloat16>) {
    if (magnitude_bits(scaled) >= 0x7f800000u) return Code(scaled);
    const uint32_t bits = std::bit_cast<uint32_t>(scaled) + (word >> 16);
    return Code(std::bit_cast<float>(bits & 0xffff0000u));
  } else {
    return Code(scaled);
  }
}

template <class Code>
WEFT_FN Code code_of(float x, const BlockScale& scale, bool stochastic, uint32_t word) {
  if (scale.factor == 0) return Code(0);
  return stochastic ? stochastic_code<Code>(x * scale.factor, word)
                    : nearest_code<Code>(x * scale.factor);
}

/// The rounding error of a code, for error feedback; 0 for NaN and infinity, which would stay in it
/// forever.
template <class Code> WEFT_FN float missed_by(Code code, float x, const BlockScale& scale) {
  const float rest = x - static_cast<float>(code) * scale.scale;
  return magnitude_bits(rest) < 0x7f800000u ? rest : 0.0f;
}

}  // namespace WEFT_COMPILER

/// See weft/extend/quantize.h. The arguments fit one another.
WEFT_KERNEL(void, quantize_blocks,
            (const MemoryBlock& codes, const MemoryBlock& scales, const MemoryBlock& in,
             const MemoryBlock& residual, int64_t block, const CodeRounding& rounding),
            (codes, scales, in, residual, block, rounding))

WEFT_KERNEL(void, dequantize_blocks,
            (const MemoryBlock& out, const MemoryBlock& codes, const MemoryBlock& scales,
             int64_t block, bool accumulate),
            (out, codes, scales, block, accumulate))

}  // namespace weft
