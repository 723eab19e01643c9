// SPDX-License-Identifier: Apache-2.0
#include "src/random.h"

#include <cmath>

#include "src/kernels/lines.h"
#include "src/math.h"
#include "src/parallel.h"
#include "weft/error.h"

namespace weft {

namespace {

struct Words {
  uint32_t w[4];
};

inline Words rounds(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c0, b = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(b);
    c3 = static_cast<uint32_t>(a);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// Groups of four elements made at once: enough for vectors, and within a first-level cache.
constexpr int64_t kGroups = 256;

/// Words of groups [first, first + n): word w of group g at words[w][g - first].
void make_words(uint32_t (*words)[kGroups], uint64_t first, int64_t n, const RandomState& state) {
  const auto k0 = static_cast<uint32_t>(state.seed), k1 = static_cast<uint32_t>(state.seed >> 32);
  const auto s0 = static_cast<uint32_t>(state.stream),
             s1 = static_cast<uint32_t>(state.stream >> 32);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t group = first + static_cast<uint64_t>(i);
    const Words made =
        rounds(static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32), s0, s1, k0, k1);
    words[0][i] = made.w[0];
    words[1][i] = made.w[1];
    words[2][i] = made.w[2];
    words[3][i] = made.w[3];
  }
}

/// In [0, 1), 24 bits.
inline float unit(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

struct Uniform {
  float low, width;
  void operator()(float* out, const uint32_t (*words)[kGroups], int64_t n) const {
    for (int64_t i = 0; i < n; ++i) {
      for (int w = 0; w < 4; ++w) out[4 * i + w] = low + width * unit(words[w][i]);
    }
  }
};

struct Normal {
  float mean, deviation;
  void operator()(float* out, const uint32_t (*words)[kGroups], int64_t n) const {
    float even[2][kGroups], odd[2][kGroups];
    for (int pair = 0; pair < 2; ++pair) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) {
        // 1 - u lies in (0, 1]: its log is finite.
        const float radius = deviation * sqrt(-2.0f * log(1.0f - unit(words[2 * pair][i])));
        const float angle = 6.28318530718f * unit(words[2 * pair + 1][i]);
        even[pair][i] = mean + radius * cos(angle);
        odd[pair][i] = mean + radius * sin(angle);
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      out[4 * i] = even[0][i];
      out[4 * i + 1] = odd[0][i];
      out[4 * i + 2] = even[1][i];
      out[4 * i + 3] = odd[1][i];
    }
  }
};

struct Bernoulli {
  float p;
  void operator()(float* out, const uint32_t (*words)[kGroups], int64_t n) const {
    for (int64_t i = 0; i < n; ++i) {
      for (int w = 0; w < 4; ++w) out[4 * i + w] = unit(words[w][i]) < p ? 1.0f : 0.0f;
    }
  }
};

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  const Words made = rounds(counter[0], counter[1], counter[2], counter[3], key[0], key[1]);
  return {made.w[0], made.w[1], made.w[2], made.w[3]};
}

/// `values(line, n, first)` gets the numbers of elements [first, first + n) and writes them.
template <class Distribution, class Values>
static void each_chunk(int64_t first, int64_t count, const RandomState& state,
                       const Distribution& distribution, const Values& values) {
  uint32_t words[4][kGroups];
  float numbers[4 * kGroups];
  for (int64_t done = 0; done < count;) {
    const int64_t element = first + done, group = element / 4, skip = element % 4;
    const int64_t n = std::min(count - done, 4 * kGroups - skip);
    const int64_t groups = (skip + n + 3) / 4;
    make_words(words, static_cast<uint64_t>(group), groups, state);
    distribution(numbers, words, groups);
    values(numbers + skip, n, done);
    done += n;
  }
}

/// Elements of `block` and of the whole before row `row` of `box`, rows being along the last dim.
struct RowPlace {
  int64_t in_block = 0;
  int64_t in_whole = 0;
};
static RowPlace place_of(const Block& block, const Box& box, const Shape& shape, int64_t row) {
  const int last = shape.ndim() - 1;
  if (last < 0) return {};
  const Strides whole = dense_strides(shape);
  RowPlace place{0, box.offset[last]};
  for (int d = last - 1; d >= 0; --d) {
    const int64_t index = row % box.shape[d];
    place.in_block += index * block.strides[d];
    place.in_whole += (box.offset[d] + index) * whole[d];
    row /= box.shape[d];
  }
  return place;
}

static void check_box(const char* what, const Block& out, const Box& box, const Shape& shape) {
  if (!(out.shape == box.shape) || box.offset.ndim() != shape.ndim()) {
    fail(what, ": a block ", out.shape, " does not hold the slice ", box.shape, " of ", shape);
  }
}

/// Calls `values(row's line, numbers, n, first)` for all elements, row by row.
template <class Distribution, class Values>
static void each_row(const Block& out, const Box& box, const Shape& shape, const RandomState& state,
                     const Distribution& distribution, const Values& values) {
  if (out.numel() == 0) return;
  const int last = shape.ndim() - 1;
  const int64_t length = last < 0 ? 1 : box.shape[last];
  parallel_for(out.numel() / length, grain_of(length * 4), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const RowPlace place = place_of(out, box, shape, row);
      each_chunk(place.in_whole, length, state, distribution,
                 [&](const float* numbers, int64_t n, int64_t first) {
                   values(row, place.in_block, numbers, n, first);
                 });
    }
  });
}

static Line line_at(const Block& block, int64_t offset, int64_t first) {
  const int last = block.shape.ndim() - 1;
  const int64_t stride = last < 0 ? 1 : block.strides[last];
  auto* at =
      block.as<char>() + (offset + first * stride) * static_cast<int64_t>(size_of(block.dtype));
  return {block.dtype, at, stride};
}

template <class Distribution>
static void fill_with(const char* what, const Block& out, const Box& box, const Shape& shape,
                      const RandomState& state, const Distribution& distribution) {
  check_box(what, out, box, shape);
  each_row(out, box, shape, state, distribution,
           [&](int64_t, int64_t offset, const float* numbers, int64_t n, int64_t first) {
             store_line<float>(line_at(out, offset, first), numbers, n);
           });
}

void fill_uniform(const Block& out, const Box& box, const Shape& shape, const RandomState& state,
                  double low, double high) {
  fill_with("uniform", out, box, shape, state,
            Uniform{static_cast<float>(low), static_cast<float>(high - low)});
}

void fill_normal(const Block& out, const Box& box, const Shape& shape, const RandomState& state,
                 double mean, double stddev) {
  fill_with("normal", out, box, shape, state,
            Normal{static_cast<float>(mean), static_cast<float>(stddev)});
}

void fill_bernoulli(const Block& out, const Box& box, const Shape& shape, const RandomState& state,
                    double p) {
  fill_with("bernoulli", out, box, shape, state, Bernoulli{static_cast<float>(p)});
}

/// As if the operand had the result's strides: its row begins `offset` elements on.
static int64_t offset_in(const Block& in, int64_t row) {
  int64_t offset = 0;
  for (int d = in.shape.ndim() - 2; d >= 0; --d) {
    offset += row % in.shape[d] * in.strides[d];
    row /= in.shape[d];
  }
  return offset;
}

void dropout(const Block& out, const Block& in, const Box& box, const Shape& shape,
             const RandomState& state, double p) {
  check_box("dropout", out, box, shape);
  if (!(in.shape == out.shape)) fail("dropout: ", in.shape, " goes to ", out.shape);
  visit_compute_floating("dropout", out.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    const C factor = p < 1 ? static_cast<C>(1 / (1 - p)) : C(0);
    each_row(out, box, shape, state, Bernoulli{static_cast<float>(1 - p)},
             [&](int64_t row, int64_t offset, const float* kept, int64_t n, int64_t first) {
               C values[4 * kGroups];
               load_line<C>(values, line_at(in, offset_in(in, row), first), n);
#pragma GCC ivdep
               for (int64_t i = 0; i < n; ++i) {
                 values[i] = kept[i] != 0.0f ? values[i] * factor : C(0);
               }
               store_line<C>(line_at(out, offset, first), values, n);
             });
  });
}

}  // namespace weft
