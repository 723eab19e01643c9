// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

/// WEFT_FN marks scalar functions that run on every device. Templates defined in headers are in
/// `inline namespace WEFT_COMPILER`: otherwise the linker would merge an instance compiled by g++
/// with one compiled by nvcc and keep either.
#ifdef __CUDACC__
#define WEFT_FN __host__ __device__
#define WEFT_COMPILER compiled_by_nvcc
#else
#define WEFT_FN
#define WEFT_COMPILER compiled_by_gxx
#endif

namespace weft {

/// The upper half of a float: 8 bits of exponent, 7 of fraction. Converts to nearest, ties to even;
/// NaN stays NaN. Arithmetic happens in float.
struct bfloat16 {
  uint16_t bits = 0;

  bfloat16() = default;
  WEFT_FN constexpr bfloat16(float x) : bits(rounded(std::bit_cast<uint32_t>(x))) {}
  WEFT_FN constexpr operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }

 private:
  WEFT_FN static constexpr uint16_t rounded(uint32_t x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if (!std::is_constant_evaluated()) {
      uint16_t by_gpu;
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(by_gpu) : "f"(std::bit_cast<float>(x)));
      return by_gpu;
    }
#endif
    const uint32_t nearest = (x + 0x7fffu + ((x >> 16) & 1u)) >> 16;
    const uint32_t quiet = (x >> 16) | 0x40u;
    return static_cast<uint16_t>((x & 0x7fffffffu) > 0x7f800000u ? quiet : nearest);
  }
};

/// IEEE half precision: 5 bits of exponent, 10 of fraction. Converts to nearest, ties to even; NaN
/// stays NaN, and values out of range become infinite. Arithmetic happens in float.
struct float16 {
  uint16_t bits = 0;

  float16() = default;
  WEFT_FN constexpr float16(float x) : bits(rounded(std::bit_cast<uint32_t>(x))) {}
  WEFT_FN constexpr operator float() const {
#ifdef __CUDA_ARCH__
    if (!std::is_constant_evaluated()) {
      float by_gpu;
      asm("cvt.f32.f16 %0, %1;" : "=f"(by_gpu) : "h"(bits));
      return by_gpu;
    }
#endif
    // A multiplication rebiases the exponent, which is also correct for denormals; inf and NaN are
    // handled separately.
    const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fffu) << 13;
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
    const uint32_t special = 0x7f800000u | (magnitude & 0x007fffffu);
    const uint32_t finite = std::bit_cast<uint32_t>(scaled);
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    return std::bit_cast<float>(sign | (magnitude >= 0x0f800000u ? special : finite));
  }

 private:
  WEFT_FN static constexpr uint16_t rounded(uint32_t x) {
#ifdef __CUDA_ARCH__
    if (!std::is_constant_evaluated()) {
      uint16_t by_gpu;
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(by_gpu) : "f"(std::bit_cast<float>(x)));
      return by_gpu;
    }
#endif
    const uint32_t sign = (x >> 16) & 0x8000u;
    const uint32_t magnitude = x & 0x7fffffffu;
    // Adding 0.5 aligns a denormal's fraction with the end of the word and rounds it.
    const float denormal = std::bit_cast<float>(magnitude) + 0.5f;
    const uint32_t small = std::bit_cast<uint32_t>(denormal) - 0x3f000000u;
    const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const uint32_t large = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x3ffu) : 0x7c00u;
    const uint32_t finite = magnitude < 0x38800000u ? small : normal;
    return static_cast<uint16_t>(sign | (magnitude >= 0x477ff000u ? large : finite));
  }
};

/// 1 bit of sign, kExponent of exponent, the others of fraction. Converts to nearest, ties to even;
/// NaN stays NaN, and values out of range become infinite or, in E4M3, which has no infinity, NaN.
template <int kExponent> struct float8 {
  uint8_t bits = 0;

  float8() = default;
  WEFT_FN constexpr float8(float x) : bits(rounded(std::bit_cast<uint32_t>(x))) {}
  WEFT_FN constexpr operator float() const {
    // A multiplication rebiases the exponent, which is also correct for denormals.
    const uint32_t code = bits & 0x7fu;
    const float rebias = std::bit_cast<float>(static_cast<uint32_t>(254 - kBias) << 23);
    const float finite = std::bit_cast<float>(code << kShift) * rebias;
    const uint32_t special = code == kInfinity ? 0x7f800000u : 0x7fc00000u;
    const uint32_t magnitude = code < kEnd ? std::bit_cast<uint32_t>(finite) : special;
    return std::bit_cast<float>(magnitude | static_cast<uint32_t>(bits & 0x80u) << 24);
  }

 private:
  static constexpr int kFraction = 7 - kExponent, kShift = 23 - kFraction;
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr bool kHasInfinity = kExponent == 5;
  /// Codes of infinity (none in E4M3), of what overflows, and of NaN. Smaller ones are finite.
  static constexpr uint32_t kInfinity = kHasInfinity ? 0x7c : 0xff;
  static constexpr uint32_t kEnd = kHasInfinity ? 0x7c : 0x7f;
  static constexpr uint32_t kNaN = kHasInfinity ? 0x7e : 0x7f;

  WEFT_FN static constexpr uint8_t rounded(uint32_t x) {
    const uint32_t sign = (x >> 24) & 0x80u;
    const uint32_t magnitude = x & 0x7fffffffu;
    // Adding a power of two aligns a denormal's fraction with the end of the word and rounds it.
    constexpr auto kAlign = static_cast<uint32_t>(127 + 23 + 1 - kBias - kFraction) << 23;
    const float denormal = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kAlign);
    const uint32_t small = std::bit_cast<uint32_t>(denormal) - kAlign;
    constexpr auto kRebias = static_cast<uint32_t>(127 - kBias) << 23;
    constexpr uint32_t kHalf = (1u << (kShift - 1)) - 1u;
    const uint32_t normal = (magnitude - kRebias + kHalf + ((magnitude >> kShift) & 1u)) >> kShift;
    const uint32_t finite = magnitude < kRebias + (1u << 23) ? small : normal;
    const uint32_t in_range = finite < kEnd ? finite : kEnd;
    return static_cast<uint8_t>(sign | (magnitude > 0x7f800000u ? kNaN : in_range));
  }
};
using float8_e4m3 = float8<4>;
using float8_e5m2 = float8<5>;

/// Types that are narrower than the float they are computed in.
template <class T>
inline constexpr bool is_half = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16> ||
                                std::is_same_v<T, float8_e4m3> || std::is_same_v<T, float8_e5m2>;
template <class T>
inline constexpr bool is_floating_type = std::is_floating_point_v<T> || is_half<T>;

/// Converts `x` to a float for rounding to a half. An inexact value becomes the neighbour with an
/// odd fraction, so that rounding twice equals rounding once (Boldo and Melquiond, 2008).
template <class T> WEFT_FN constexpr float before_half(T x) {
  if constexpr (is_floating_type<T> ? sizeof(T) <= sizeof(float) : sizeof(T) <= 2) {
    return static_cast<float>(x);
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    const bool fits = x <= uint64_t{1} << 53;
    const uint64_t sticky = (x & 0x7ff) != 0 ? 0x800 : 0;
    return before_half(static_cast<double>(fits ? x : (x & ~uint64_t{0x7ff}) | sticky));
  } else if constexpr (std::is_same_v<T, int64_t>) {
    const bool fits = x >= -(int64_t{1} << 53) && x <= int64_t{1} << 53;
    const int64_t sticky = (x & 0x7ff) != 0 ? 0x800 : 0;
    return before_half(static_cast<double>(fits ? x : (x & ~int64_t{0x7ff}) | sticky));
  } else {
    const double exact = static_cast<double>(x);
    const auto nearest = static_cast<float>(exact);
    const double reached = static_cast<double>(nearest);
    if (reached == exact || exact != exact) return nearest;
    const bool is_beyond = (exact < 0 ? -reached : reached) > (exact < 0 ? -exact : exact);
    return std::bit_cast<float>((std::bit_cast<uint32_t>(nearest) - (is_beyond ? 1 : 0)) | 1u);
  }
}

}  // namespace weft
