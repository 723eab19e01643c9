// SPDX-License-Identifier: Apache-2.0
// Compiled without contraction to FMA: the bits must be those of every other device.
#include "src/kernels/random/random.h"

#include <algorithm>

#include "src/base/independent.h"
#include "src/base/parallel.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/iteration/iteration.h"
#include "src/kernels/math/philox.h"
#include "weft/error.h"

namespace weft::host {
namespace {

/// Counters per buffer, four words each; counts are rounded up to multiples of kCounterStep.
constexpr int64_t kCounters = 256, kCounterStep = 16;
/// Elements per buffer: whole cache lines, so that pieces stay aligned.
constexpr int64_t kRandomChunk = 4 * (kCounters - kCounterStep);

/// Words of consecutive counters: all first words, then all second words, and so on.
struct Words {
  alignas(64) uint32_t w[4][kCounters];

  void fill(const RandomState& state, uint64_t first, int64_t count) {
    const WordStream words(state.seed, state.stream);
    for (int64_t i = 0; i < count; ++i) {
      uint32_t c0, c1, c2, c3;
      words(first + static_cast<uint64_t>(i), c0, c1, c2, c3);
      w[0][i] = c0;
      w[1][i] = c1;
      w[2][i] = c2;
      w[3][i] = c3;
    }
  }
};

/// Computes the values of `count` counters.
template <class F>
void draw(const F& f, const Words& words, int64_t count, typename F::Value* out) {
  for (int64_t i = 0; i < count; ++i) {
    for (int j = 0; j < 4; j += 2) {
      f.pair(words.w[j][i], words.w[j + 1][i], out[4 * i + j], out[4 * i + j + 1]);
    }
  }
}

/// Calls store(position in the box, first word, n, words, count) for pieces of the box.
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
      // Computes whole vectors; excess words are ignored.
      const int64_t count =
          std::min(kCounters, (needed + kCounterStep - 1) / kCounterStep * kCounterStep);
      words.fill(state, static_cast<uint64_t>(element / 4), count);
      store(run * runs.length + start, skipped, n, words, count);
    }
  });
}

/// Fills a dense block by applying a functor to words.
template <class F>
void fill_dense(const MemoryBlock& out, const Box& box, const Shape& shape,
                const RandomState& state, const F& f) {
  for_each_piece(
      box, shape, state,
      [&](int64_t position, int64_t skipped, int64_t n, const Words& words, int64_t count) {
        alignas(64) typename F::Value values[4 * kCounters];
        draw(f, words, count, values);
        store_line(line_at(out, position), values + skipped, n);
      });
}

template <class C>
void dropout_dense(const MemoryBlock& out, const MemoryBlock& in, const Box& box,
                   const Shape& shape, const RandomState& state, const Bernoulli& kept) {
  for_each_piece(
      box, shape, state,
      [&](int64_t position, int64_t skipped, int64_t n, const Words& words, int64_t count) {
        alignas(64) float factors[4 * kCounters];
        alignas(64) C values[4 * kCounters];
        draw(kept, words, count, factors);
        const Line target = line_at(out, position);
        const bool writes = out.dtype == dtype_of<C>;
        const C* x = dense_line(line_at(in, position), n, values);
        C* y = writes ? static_cast<C*>(target.data) : values;
        const float* mine = factors + skipped;
        WEFT_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) {
          y[i] = Dropped<C>()(x[i], mine[i]);
        }
        if (!writes) store_line(target, values, n);
      });
}

}  // namespace

void fill_random(const MemoryBlock& out, const Box& box, const Shape& shape,
                 const RandomState& state, const Distribution& distribution) {
  check_box(out, box, shape);
  std::visit(
      [&](const auto& f) {
        if (out.is_dense()) return fill_dense(out, box, shape, state, f);
        const DenseMemory dense(out.shape, out.dtype, out.device);
        fill_dense(dense.block, box, shape, state, f);
        host::copy(out, dense.block);
      },
      distribution);
}

void dropout(const MemoryBlock& out, const MemoryBlock& in, const Box& box, const Shape& shape,
             const RandomState& state, double p) {
  check_box(out, box, shape);
  check_box(in, box, shape);
  if (!out.is_dense()) {
    const DenseMemory dense(out.shape, out.dtype, out.device);
    host::dropout(dense.block, in, box, shape, state, p);
    return host::copy(out, dense.block);
  }
  if (!in.is_dense()) {
    // Copies into the result, which is then dropped in place.
    host::copy(out, in);
    return host::dropout(out, out, box, shape, state, p);
  }
  visit_compute_floating("dropout", in.dtype, [&]<class C>(Type<C>) {
    dropout_dense<C>(out, in, box, shape, state, kept_by_dropout(p));
  });
}

}  // namespace weft::host

namespace weft {

void check_box(const MemoryBlock& block, const Box& box, const Shape& shape) {
  bool fits = block.shape == box.shape && box.shape.ndim() == shape.ndim();
  for (int i = 0; fits && i < shape.ndim(); ++i) {
    fits = box.offset[i] >= 0 && box.offset[i] + box.shape[i] <= shape[i];
  }
  if (!fits) {
    fail("random: block is ", block.shape, ", expected ", box.shape, " at ", box.offset, " of ",
         shape);
  }
}

}  // namespace weft
