// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/rope.h"

#include <cmath>
#include <vector>

#include "src/kernels/iteration.h"
#include "src/parallel.h"

namespace weft {

namespace {

/// cos and sin of the angles of positions [offset, offset + count), a row of D / 2 each.
template <class C>
struct Turns {
  std::vector<C> cosine, sine;

  Turns(int64_t count, int64_t pairs, const Rope& options)
      : cosine(static_cast<size_t>(count * pairs)), sine(cosine.size()) {
    for (int64_t i = 0; i < pairs; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(2 * pairs);
      const auto frequency = static_cast<float>(std::pow(options.theta, exponent));
      for (int64_t p = 0; p < count; ++p) {
        const auto angle = static_cast<double>(static_cast<float>(options.offset + p) * frequency);
        const auto at = static_cast<size_t>(p * pairs + i);
        cosine[at] = static_cast<C>(std::cos(angle));
        sine[at] = static_cast<C>(options.inverse ? -std::sin(angle) : std::sin(angle));
      }
    }
  }
};

template <class T, class C>
void turn_row(T* y, const T* x, const C* cosine, const C* sine, int64_t pairs) {
#pragma GCC ivdep
  for (int64_t i = 0; i < pairs; ++i) {
    const C a = static_cast<C>(x[i]), b = static_cast<C>(x[i + pairs]);
    y[i] = static_cast<T>(a * cosine[i] - b * sine[i]);
    y[i + pairs] = static_cast<T>(b * cosine[i] + a * sine[i]);
  }
}

}  // namespace

/// The turns of the last call of this thread: a model calls with the same ones again and again.
template <class C>
static const Turns<C>& turns_for(int64_t count, int64_t pairs, const Rope& options) {
  struct Kept {
    int64_t count, pairs;
    Rope options;
    Turns<C> turns;
  };
  static thread_local std::vector<Kept> kept;
  for (const Kept& k : kept) {
    if (k.count == count && k.pairs == pairs && k.options.theta == options.theta &&
        k.options.offset == options.offset && k.options.inverse == options.inverse) {
      return k.turns;
    }
  }
  constexpr size_t kMostKept = 4;
  if (kept.size() >= kMostKept) kept.erase(kept.begin());
  kept.push_back({count, pairs, options, Turns<C>(count, pairs, options)});
  return kept.back().turns;
}

/// Elements from the start of a block to its row number `row`, counted over all dims but the last.
static int64_t row_offset(const Block& block, int64_t row) {
  int64_t offset = 0;
  for (int d = block.shape.ndim() - 2; d >= 0; --d) {
    offset += row % block.shape[d] * block.strides[d];
    row /= block.shape[d];
  }
  return offset;
}

void rope(const Block& y, const Block& x, int sequence_dim, const Rope& options) {
  const int last = x.shape.ndim() - 1;
  const int64_t size = x.shape[last];
  if (!(y.shape == x.shape)) fail("rope: the result is ", y.shape, " but the operand ", x.shape);
  if (size % 2 != 0)
    fail("rope: the last dim of ", x.shape, " has ", size, " elements, an odd number");
  if (sequence_dim >= last || sequence_dim < 0)
    fail("rope: dim ", sequence_dim, " of ", x.shape, " is no sequence");
  if (x.strides[last] != 1 || y.strides[last] != 1) fail("rope: the last dim must be dense");
  if (x.numel() == 0) return;
  int64_t inner = 1;
  for (int d = sequence_dim + 1; d < last; ++d) inner *= x.shape[d];
  const int64_t positions = x.shape[sequence_dim], pairs = size / 2;
  visit_floating("rope", x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto& turns = turns_for<Compute<T>>(positions, pairs, options);
    parallel_for(x.numel() / size, grain_of(size), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = row / inner % positions * pairs;
        turn_row(y.as<T>() + row_offset(y, row), x.as<const T>() + row_offset(x, row),
                 turns.cosine.data() + at, turns.sine.data() + at, pairs);
      }
    });
  });
}

}  // namespace weft
