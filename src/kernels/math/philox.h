// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "src/base/numeric.h"
#include "src/kernels/math/math.h"
#include "weft/block.h"

namespace weft {

// The computation of src/kernels/random/random.h for one element. Files that draw numbers by it
// compile without contraction to FMA, and all is inlined even without optimisation: bits are equal
// on all devices.
#define WEFT_DRAW [[gnu::always_inline]] WEFT_FN

/// Philox 4x32-10 (Salmon et al., SC 2011): replaces the four words of a counter by random ones.
struct Philox {
  uint32_t key0, key1;

  WEFT_DRAW void operator()(uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3) const {
    uint32_t k0 = key0, k1 = key1;
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
      const uint32_t next0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      const uint32_t next2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c1 = static_cast<uint32_t>(p1);
      c3 = static_cast<uint32_t>(p0);
      c0 = next0;
      c2 = next2;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
  }
};

/// The words of a stream, from one counter after the other.
struct WordStream {
  Philox philox;
  uint32_t stream0, stream1;

  WordStream(uint64_t seed, uint64_t stream)
      : philox{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
        stream0(static_cast<uint32_t>(stream)),
        stream1(static_cast<uint32_t>(stream >> 32)) {}

  WEFT_DRAW void operator()(uint64_t counter, uint32_t& c0, uint32_t& c1, uint32_t& c2,
                            uint32_t& c3) const {
    c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
    c2 = stream0, c3 = stream1;
    philox(c0, c1, c2, c3);
  }
};

/// A float in [0, 1), a multiple of 2^-24.
WEFT_DRAW inline float unit(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

// Distributions: map the two words of an even element and the next one to their values.

/// A float in [low, low + span], at most `last`.
struct Uniform {
  using Value = float;
  float low, span, last;

  WEFT_DRAW void pair(uint32_t a, uint32_t b, float& first, float& second) const {
    first = at(a), second = at(b);
  }
  WEFT_DRAW float at(uint32_t word) const {
    const float x = low + unit(word) * span;
    return x < last ? x : last;
  }
};

/// `one` with probability p, else 0.
struct Bernoulli {
  using Value = float;
  float p, one;

  WEFT_DRAW void pair(uint32_t a, uint32_t b, float& first, float& second) const {
    first = at(a), second = at(b);
  }
  /// Uses a product, because the compiler turns a conditional into a branch, which is mispredicted.
  WEFT_DRAW float at(uint32_t word) const { return static_cast<float>(unit(word) < p) * one; }
};

struct Normal {
  using Value = float;
  float mean, stddev;

  /// The first word gives the radius, from (0, 1]; the second the angle, in quarter turns.
  WEFT_DRAW void pair(uint32_t a, uint32_t b, float& first, float& second) const {
    const float radius = stddev * sqrt(-2.0f * log(unit(a) + 0x1p-24f));
    const NearestInteger quarter = nearest_integer(unit(b) * 4.0f);
    const float angle = (unit(b) * 4.0f - quarter.value) * 0x1.921fb6p0f;
    const auto quadrant = static_cast<uint32_t>(quarter.n);
    first = mean + radius * sine_in_quadrant(angle, quadrant + 1);
    second = mean + radius * sine_in_quadrant(angle, quadrant);
  }
};

/// Integers in [low, low + span); span is at most 2^32. The other word of the pair supplies further
/// bits below the first: with 32 bits alone, some values of a large span would be twice as likely.
struct Integers {
  using Value = int64_t;
  int64_t low;
  uint64_t span;

  WEFT_DRAW void pair(uint32_t a, uint32_t b, int64_t& first, int64_t& second) const {
    first = at(a, b), second = at(b, a);
  }
  WEFT_DRAW int64_t at(uint32_t word, uint32_t after) const {
    return low + static_cast<int64_t>((word * span + (after * span >> 32)) >> 32);
  }
};

/// Computes an element of dropout's result from the value that Bernoulli drew.
template <class C> struct Dropped {
  WEFT_DRAW C operator()(C x, float drawn) const {
    const C factor = static_cast<C>(drawn), scaled = x * factor;
    return factor != 0 ? scaled : C(0);
  }
};

#undef WEFT_DRAW

// Constructors of the distributions that src/kernels/random/random.h draws from.

/// The greatest value of a half dtype below `high`.
template <class Half> float last_half_below(float high) {
  Half last(high);
  if (static_cast<float>(last) < high) return last;
  const bool is_zero = (last.bits & 0x7fff) == 0, is_negative = last.bits & 0x8000;
  last.bits = static_cast<uint16_t>(is_zero ? 0x8001 : last.bits + (is_negative ? 1 : -1));
  return last;
}

inline float last_below(float high, DType dtype) {
  if (dtype == DType::bf16) return last_half_below<bfloat16>(high);
  if (dtype == DType::f16) return last_half_below<float16>(high);
  return std::nextafter(high, -std::numeric_limits<float>::infinity());
}

/// Uniform in [low, high), after rounding to the dtype.
inline Uniform uniform_in(double low, double high, DType dtype) {
  const auto first = static_cast<float>(low), end = static_cast<float>(high);
  return {first, static_cast<float>(high - low), std::max(first, last_below(end, dtype))};
}
/// Normal, by the Box-Muller transform of words (0, 1) and (2, 3).
inline Normal normal_of(double mean, double stddev) {
  return {static_cast<float>(mean), static_cast<float>(stddev)};
}
/// std::invalid_argument when there are no integers in [low, high), or more than 2^32.
inline Integers integers_in(int64_t low, int64_t high) {
  const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  if (low >= high || span > uint64_t{1} << 32) {
    fail("randint: low and high are ", low, " and ", high, ", expected a difference of 1 to 2^32");
  }
  return {low, span};
}
/// The value is 1 / (1 - p) where dropout keeps an element.
inline Bernoulli kept_by_dropout(double p) {
  return {static_cast<float>(1 - p), p < 1 ? static_cast<float>(1 / (1 - p)) : 0.0f};
}

/// A box as runs of consecutive elements of the whole tensor, all of one length.
struct Runs {
  Shape outer;
  Strides outer_strides;
  int64_t count = 1, length = 1, start = 0;

  Runs(const Box& box, const Shape& shape) {
    const Strides strides = dense_strides(shape);
    int last = shape.ndim() - 1;
    for (; last >= 0; --last) {
      length *= box.shape[last];
      start += box.offset[last] * strides[last];
      if (box.shape[last] != shape[last]) break;
    }
    for (int i = 0; i < last; ++i) {
      outer.push_back(box.shape[i]);
      outer_strides.push_back(strides[i]);
      count *= box.shape[i];
      start += box.offset[i] * strides[i];
    }
  }
  /// Index in the whole tensor of the first element of run `run`.
  int64_t first(int64_t run) const {
    int64_t element = start;
    for (int i = outer.ndim() - 1; i >= 0; --i) {
      element += run % outer[i] * outer_strides[i];
      run /= outer[i];
    }
    return element;
  }
};

}  // namespace weft
