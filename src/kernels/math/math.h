// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "src/base/numeric.h"

namespace weft {

// Branch-free functions for kernels, so that loops over them vectorise. The float versions are
// implemented here, with coefficients fitted to the least relative error; `ulp` is the greatest
// error that tests measure, in units in the last place of the result. The double versions call the
// C library. On a GPU exp, sigmoid, tanh, erf and rsqrt use NVIDIA's functions (1 to 2 ulp by the
// CUDA C++ programming guide). All are inlined even without optimisation: the linker would merge
// copies of one function compiled with and without FMA contraction.
#define WEFT_MATH [[gnu::always_inline]] WEFT_FN inline

#ifdef __CUDA_ARCH__
static constexpr bool kOnGpu = true;
WEFT_MATH float fast_quotient(float a, float b) { return __fdividef(a, b); }
WEFT_MATH float rsqrt(float x) { return ::rsqrtf(x); }
#else
static constexpr bool kOnGpu = false;
WEFT_MATH float fast_quotient(float a, float b) { return a / b; }
WEFT_MATH float rsqrt(float x) { return 1.0f / ::sqrtf(x); }  // 1.5 ulp
#endif

/// The polynomial with these coefficients, from that of the highest power on.
template <class T, class... Lower> WEFT_MATH T polynomial(T x, T value, Lower... lower) {
  ((value = value * x + lower), ...);
  return value;
}

/// p * 2^n for n in [-252, 254]; p in [0.5, 2]. Multiplies by two factors, so that denormal results
/// are rounded once.
WEFT_MATH float times_power_of_two(float p, int32_t n) {
  const int32_t half = n >> 1;
  const float first = std::bit_cast<float>((half + 127) << 23);
  const float second = std::bit_cast<float>((n - half + 127) << 23);
  return p * first * second;
}

/// The integer nearest to x, for |x| < 2^22: the addition leaves it in the low bits of the word.
struct NearestInteger {
  float value;
  int32_t n;
};
WEFT_MATH NearestInteger nearest_integer(float x) {
  const float shifted = x + 0x1.8p23f;
  return {shifted - 0x1.8p23f, std::bit_cast<int32_t>(shifted) - 0x4b400000};
}

/// 1 ulp.
WEFT_MATH float exp(float x) {
  if (kOnGpu) return ::expf(x);
  // Results of 0 are handled separately: denormals on the way would cost a hundred cycles each.
  const bool vanishes = x < -104.0f;
  const float low = vanishes ? 0.0f : x;
  const float clamped = low > 89.0f ? 89.0f : low;
  const NearestInteger n = nearest_integer(clamped * 0x1.715476p0f);
  const float r = (clamped - n.value * 0x1.62e4p-1f) - n.value * 0x1.7f7d1cp-20f;
  const float q = polynomial(r, 0x1.6a4f28p-10f, 0x1.123980p-7f, 0x1.5558aep-5f, 0x1.555492p-3f,
                             0x1.fffffcp-2f);
  const float value = times_power_of_two(1.0f + (r + r * r * q), n.n);
  return vanishes ? 0.0f : value;
}
WEFT_MATH double exp(double x) { return ::exp(x); }

/// 1 ulp.
WEFT_MATH float log(float x) {
  const bool denormal = x < 0x1p-126f;
  const float normal = denormal ? x * 0x1p23f : x;
  // Chooses the exponent so that the fraction lies in [sqrt(1/2), sqrt(2)).
  const uint32_t bits = std::bit_cast<uint32_t>(normal) - 0x3f3504f3u;
  const int32_t exponent = static_cast<int32_t>(bits) >> 23;
  const float f = std::bit_cast<float>((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  const float e = static_cast<float>(exponent - (denormal ? 23 : 0));
  const float p =
      polynomial(f, 0x1.14760cp-4f, -0x1.de02bcp-4f, 0x1.e6bf3ap-4f, -0x1.fc2886p-4f,
                 0x1.233ba8p-3f, -0x1.555c46p-3f, 0x1.99a476p-3f, -0x1.000006p-2f, 0x1.555548p-2f);
  const float square = f * f;
  const float small = (p * f * square + e * 0x1.7f7d1cp-20f) - 0.5f * square;
  const float finite = e * 0x1.62e4p-1f + (f + small);
  const float positive = x > 0x1.fffffep127f ? x : finite;
  const float not_zero = x > 0 ? positive : std::bit_cast<float>(0x7fc00000);
  return x == 0 ? std::bit_cast<float>(0xff800000) : not_zero;
}
WEFT_MATH double log(double x) { return ::log(x); }

/// 2.5 ulp.
WEFT_MATH float sigmoid(float x) {
  const float e = exp(x > 0 ? -x : x);
  return fast_quotient(x > 0 ? 1.0f : e, 1.0f + e);
}
WEFT_MATH double sigmoid(double x) {
  const double e = ::exp(-std::fabs(x));
  return (x > 0 ? 1.0 : e) / (1.0 + e);
}

/// 2 ulp.
WEFT_MATH float tanh(float x) {
  if (kOnGpu) return ::tanhf(x);
  const float t = std::fabs(x);
  const float large = 1.0f - 2.0f / (exp(2.0f * t) + 1.0f);
  const float s = x * x;
  const float p = polynomial(s, -0x1.99565ep-8f, 0x1.58ec78p-6f, -0x1.b91f20p-5f, 0x1.110cf0p-3f,
                             -0x1.55554ap-2f);
  const float small = t + t * s * p;
  return std::copysign(t < 0.55f ? small : large, x);
}
WEFT_MATH double tanh(double x) { return ::tanh(x); }

/// 2 ulp.
WEFT_MATH float erf(float x) {
  if (kOnGpu) return ::erff(x);
  const float t = std::fabs(x);
  const float s = x * x;
  const float p = polynomial(s, -0x1.38f79ep-11f, 0x1.46fa2cp-8f, -0x1.b6817cp-6f, 0x1.ce19e4p-4f,
                             -0x1.8126e4p-2f, 0x1.06eba6p-3f);
  const float small = t + t * p;
  const float u = t > 4.0f ? 4.0f : t;
  const float q = polynomial(u, 0x1.7f5b8cp-17f, -0x1.548476p-12f, 0x1.de754ep-9f, -0x1.859754p-6f,
                             0x1.b339c6p-4f, 0x1.453104p-1f, 0x1.20ef4cp0f);
  const float large = 1.0f - exp(-q * u);
  return std::copysign(t < 0.928f ? small : large, x);
}
WEFT_MATH double erf(double x) { return ::erf(x); }

/// Sine or cosine of r + quadrant * pi / 2, |r| <= pi / 4.
WEFT_MATH float sine_in_quadrant(float r, uint32_t quadrant) {
  const float s = r * r;
  const float p = polynomial(s, 0x1.7c3226p-19f, -0x1.a0595ep-13f, 0x1.111174p-7f, -0x1.555556p-3f);
  const float sine = r + r * s * p;
  const float q = polynomial(s, 0x1.99e816p-16f, -0x1.6c0c28p-10f, 0x1.55554ap-5f);
  const float cosine = 1.0f - 0.5f * s + s * s * q;
  const float value = (quadrant & 1) ? cosine : sine;
  return (quadrant & 2) ? -value : value;
}

/// x - n * pi / 2 and n, reduced in double; accurate enough for |x| <= 10^6.
struct Quadrant {
  float r;
  uint32_t n;
};
WEFT_MATH Quadrant quadrant_of(float x) {
  const double wide = static_cast<double>(x);
  const double shifted = wide * 0x1.45f306dc9c883p-1 + 0x1.8p52;
  const double n = shifted - 0x1.8p52;
  const double r = (wide - n * 0x1.921fb544p0) - n * 0x1.0b4611a626331p-34;
  return {static_cast<float>(r), static_cast<uint32_t>(std::bit_cast<uint64_t>(shifted))};
}

/// 2 ulp for |x| <= 10^6; NaN for infinities.
WEFT_MATH float sin(float x) {
  const Quadrant q = quadrant_of(x);
  return sine_in_quadrant(q.r, q.n);
}
WEFT_MATH double sin(double x) { return ::sin(x); }

/// 2 ulp for |x| <= 10^6; NaN for infinities.
WEFT_MATH float cos(float x) {
  const Quadrant q = quadrant_of(x);
  return sine_in_quadrant(q.r, q.n + 1);
}
WEFT_MATH double cos(double x) { return ::cos(x); }

/// Correctly rounded.
WEFT_MATH float sqrt(float x) { return ::sqrtf(x); }
WEFT_MATH double sqrt(double x) { return ::sqrt(x); }
WEFT_MATH double rsqrt(double x) { return 1.0 / ::sqrt(x); }

WEFT_MATH float abs(float x) { return std::fabs(x); }
WEFT_MATH double abs(double x) { return std::fabs(x); }
WEFT_MATH int64_t abs(int64_t x) { return x < 0 ? -x : x; }

#undef WEFT_MATH

}  // namespace weft
