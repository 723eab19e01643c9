// SPDX-License-Identifier: Apache-2.0
// Compiled without contraction to FMA: the bits must be those of every other device.
#include "src/random.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/kernels/copy.h"
#include "src/kernels/lines.h"
#include "src/math.h"
#include "src/parallel.h"
#include "weft/error.h"

namespace weft {
namespace {

/// Counters in work at once, four words each, and the multiple they are computed in.
constexpr int64_t kCounters = 256, kCounterStep = 16;
/// Elements in work at once: whole cache lines, so that pieces stay aligned.
constexpr int64_t kRandomChunk = 4 * (kCounters - kCounterStep);

/// One call of Philox: four words in place.
struct Philox {
  uint32_t key0, key1;

  WEFT_FN void operator()(uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3) const {
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

/// Words of consecutive counters, word by word.
struct Words {
  alignas(64) uint32_t w[4][kCounters];

  void fill(const RandomState& state, uint64_t first, int64_t count) {
    const Philox philox{static_cast<uint32_t>(state.seed), static_cast<uint32_t>(state.seed >> 32)};
    const auto stream0 = static_cast<uint32_t>(state.stream);
    const auto stream1 = static_cast<uint32_t>(state.stream >> 32);
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t counter = first + static_cast<uint64_t>(i);
      auto c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
      uint32_t c2 = stream0, c3 = stream1;
      philox(c0, c1, c2, c3);
      w[0][i] = c0;
      w[1][i] = c1;
      w[2][i] = c2;
      w[3][i] = c3;
    }
  }
};

/// In [0, 1), a multiple of 2^-24.
WEFT_FN inline float unit(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

struct Uniform {
  float low, span, last;
  void operator()(const Words& words, int64_t count, float* out) const {
    for (int64_t i = 0; i < count; ++i) {
      for (int j = 0; j < 4; ++j) out[4 * i + j] = at(words.w[j][i]);
    }
  }
  WEFT_FN float at(uint32_t word) const {
    const float x = low + unit(word) * span;
    return x < last ? x : last;
  }
};

struct Bernoulli {
  float p, one;
  void operator()(const Words& words, int64_t count, float* out) const {
    for (int64_t i = 0; i < count; ++i) {
      for (int j = 0; j < 4; ++j) out[4 * i + j] = at(words.w[j][i]);
    }
  }
  /// A product, because the compiler makes a branch of a choice, and it is mispredicted.
  WEFT_FN float at(uint32_t word) const { return static_cast<float>(unit(word) < p) * one; }
};

struct Normal {
  float mean, stddev;
  void operator()(const Words& words, int64_t count, float* out) const {
    for (int64_t i = 0; i < count; ++i) {
      for (int j = 0; j < 4; j += 2) {
        pair(words.w[j][i], words.w[j + 1][i], out[4 * i + j], out[4 * i + j + 1]);
      }
    }
  }
  /// The first word gives the radius, from (0, 1]; the second the angle, counted in quarter turns.
  [[gnu::always_inline]] WEFT_FN void pair(uint32_t a, uint32_t b, float& first,
                                           float& second) const {
    const float radius = stddev * sqrt(-2.0f * log(unit(a) + 0x1p-24f));
    const NearestInteger quarter = nearest_integer(unit(b) * 4.0f);
    const float angle = (unit(b) * 4.0f - quarter.value) * 0x1.921fb6p0f;
    const auto quadrant = static_cast<uint32_t>(quarter.n);
    first = mean + radius * sine_in_quadrant(angle, quadrant + 1);
    second = mean + radius * sine_in_quadrant(angle, quadrant);
  }
};

/// Integers in [low, low + span).
struct Integers {
  double low, span;
  WEFT_FN int64_t at(uint32_t word) const {
    return static_cast<int64_t>(std::floor(low + static_cast<double>(word) * 0x1p-32 * span));
  }
};

/// A box as runs of consecutive elements of the whole, all of one length.
struct Runs {
  Shape outer, outer_offset;
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
  /// The element of the whole that run `run` begins with.
  int64_t first(int64_t run) const {
    int64_t element = start;
    for (int i = outer.ndim() - 1; i >= 0; --i) {
      element += run % outer[i] * outer_strides[i];
      run /= outer[i];
    }
    return element;
  }
};

void check_box(const char* what, const Block& out, const Box& box, const Shape& shape) {
  bool fits = out.shape == box.shape && box.shape.ndim() == shape.ndim();
  for (int i = 0; fits && i < shape.ndim(); ++i) {
    fits = box.offset[i] >= 0 && box.offset[i] + box.shape[i] <= shape[i];
  }
  if (!fits) {
    fail(what, ": a block of ", out.shape, " for box ", box.offset, " + ", box.shape, " of ",
         shape);
  }
}

/// Calls store(position in the box, first word, n, words) for pieces of the box.
template <class Store>
void for_each_piece(const Box& box, const Shape& shape, const RandomState& state,
                    const Store& store) {
  const Runs runs(box, shape);
  if (runs.count * runs.length == 0) return;
  const int64_t across = (runs.length + kRandomChunk - 1) / kRandomChunk;
  const int64_t grain = grain_of(8 * std::min(runs.length, kRandomChunk));
  parallel_for(runs.count * across, grain, [&](int64_t begin, int64_t end) {
    Words words;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t run = i / across, start = i % across * kRandomChunk;
      const int64_t n = std::min(kRandomChunk, runs.length - start);
      const int64_t element = runs.first(run) + start, skipped = element % 4;
      const int64_t needed = (skipped + n + 3) / 4;
      // Whole vectors: what is too much is thrown away.
      const int64_t count =
          std::min(kCounters, (needed + kCounterStep - 1) / kCounterStep * kCounterStep);
      words.fill(state, static_cast<uint64_t>(element / 4), count);
      store(run * runs.length + start, skipped, n, words, count);
    }
  });
}

/// Fills a dense block from a functor on words.
template <class F>
void fill_dense(const Block& out, const Box& box, const Shape& shape, const RandomState& state,
                const F& f) {
  const LineConverter convert = line_converter(out.dtype, DType::f32);
  const auto bytes = static_cast<int64_t>(size_of(out.dtype));
  for_each_piece(
      box, shape, state,
      [&](int64_t position, int64_t skipped, int64_t n, const Words& words, int64_t count) {
        alignas(64) float values[4 * kCounters];
        f(words, count, values);
        convert(out.as<char>() + position * bytes, 1, values + skipped, 1, n);
      });
}

void fill_dense(const Block& out, const Box& box, const Shape& shape, const RandomState& state,
                const Integers& f) {
  const auto bytes = static_cast<int64_t>(size_of(out.dtype));
  for_each_piece(box, shape, state,
                 [&](int64_t position, int64_t skipped, int64_t n, const Words& words, int64_t) {
                   int64_t values[4 * kCounters];
                   for (int64_t i = skipped; i < skipped + n; ++i) {
                     values[i] = f.at(words.w[i % 4][i / 4]);
                   }
                   store_line({out.dtype, out.as<char>() + position * bytes}, values + skipped, n);
                 });
}

/// Calls f(a dense block) and copies what it wrote to `out`.
template <class F>
void through_dense(const Block& out, const F& f) {
  std::vector<std::byte> memory(static_cast<size_t>(out.numel()) * size_of(out.dtype));
  const Block dense = dense_block(memory.data(), out.dtype, out.shape);
  f(dense);
  copy(out, dense);
}

template <class F>
void fill_any(const char* what, const Block& out, const Box& box, const Shape& shape,
              const RandomState& state, const F& f) {
  check_box(what, out, box, shape);
  if (out.is_dense()) return fill_dense(out, box, shape, state, f);
  through_dense(out, [&](const Block& dense) { fill_dense(dense, box, shape, state, f); });
}

template <class C>
void dropout_dense(const Block& out, const Block& in, const Box& box, const Shape& shape,
                   const RandomState& state, const Bernoulli& kept) {
  const auto from = static_cast<int64_t>(size_of(in.dtype));
  const auto to = static_cast<int64_t>(size_of(out.dtype));
  for_each_piece(
      box, shape, state,
      [&](int64_t position, int64_t skipped, int64_t n, const Words& words, int64_t count) {
        alignas(64) float factors[4 * kCounters];
        alignas(64) C values[4 * kCounters];
        kept(words, count, factors);
        const Line source{in.dtype, in.as<char>() + position * from};
        const Line target{out.dtype, out.as<char>() + position * to};
        const bool reads = in.dtype == dtype_of<C>, writes = out.dtype == dtype_of<C>;
        if (!reads) load_line(values, source, n);
        const C* x = reads ? static_cast<const C*>(source.data) : values;
        C* y = writes ? static_cast<C*>(target.data) : values;
        const float* mine = factors + skipped;
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) {
          const C factor = static_cast<C>(mine[i]), scaled = x[i] * factor;
          y[i] = factor != 0 ? scaled : C(0);
        }
        if (!writes) store_line(target, values, n);
      });
}

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  Philox{key[0], key[1]}(counter[0], counter[1], counter[2], counter[3]);
  return counter;
}

void fill_uniform(const Block& out, const Box& box, const Shape& shape, const RandomState& state,
                  double low, double high) {
  if (!is_floating(out.dtype)) {
    return fill_any("uniform", out, box, shape, state, Integers{low, high - low});
  }
  const auto first = static_cast<float>(low), end = static_cast<float>(high);
  const Uniform f{first, static_cast<float>(high - low), std::nextafter(end, first)};
  fill_any("uniform", out, box, shape, state, f);
}

void fill_normal(const Block& out, const Box& box, const Shape& shape, const RandomState& state,
                 double mean, double stddev) {
  const Normal f{static_cast<float>(mean), static_cast<float>(stddev)};
  fill_any("normal", out, box, shape, state, f);
}

void fill_bernoulli(const Block& out, const Box& box, const Shape& shape, const RandomState& state,
                    double p) {
  fill_any("bernoulli", out, box, shape, state, Bernoulli{static_cast<float>(p), 1});
}

void dropout(const Block& out, const Block& in, const Box& box, const Shape& shape,
             const RandomState& state, double p) {
  check_box("dropout", out, box, shape);
  check_box("dropout", in, box, shape);
  if (!out.is_dense()) {
    return through_dense(out,
                         [&](const Block& dense) { dropout(dense, in, box, shape, state, p); });
  }
  if (!in.is_dense()) {
    // A dense copy takes the place of the result, which is then dropped in place.
    copy(out, in);
    return dropout(out, out, box, shape, state, p);
  }
  const Bernoulli kept{static_cast<float>(1 - p), p < 1 ? static_cast<float>(1 / (1 - p)) : 0.0f};
  visit_compute_floating("dropout", in.dtype, [&](auto type) {
    dropout_dense<typename decltype(type)::type>(out, in, box, shape, state, kept);
  });
}

}  // namespace weft
