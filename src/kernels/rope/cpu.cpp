// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/rope/rope.h"

#include <cmath>
#include <vector>

#include "src/base/parallel.h"
#include "src/kernels/map/map.h"
#include "src/kernels/math/math.h"
#include "src/kernels/rows/rows.h"
#include "weft/error.h"

namespace weft {

RopeRows::RopeRows(const MemoryBlock& y_block, const MemoryBlock& x_block, int sequence_dim) {
  const Shape& shape = x_block.shape;
  const int last = shape.ndim() - 1;
  if (last < 1 || sequence_dim < 0 || sequence_dim >= last) {
    fail("rope: dim of positions is ", sequence_dim, ", expected one before the last of ", shape);
  }
  if (shape[last] % 2 != 0) fail("rope: size of a head is ", shape[last], ", expected an even one");
  x = Rows(x_block, last), y = Rows(y_block, last);
  check_rows("rope", x, y);
  half = x.size() / 2, positions = shape[sequence_dim];
  for (int i = sequence_dim + 1; i < last; ++i) inside *= shape[i];
}

}  // namespace weft

namespace weft::host {

/// Cosines and sines of positions offset .. offset + count - 1, `half` of them per position.
struct RopeTable {
  double theta = 0;
  int64_t offset = 0, count = 0, half = 0;
  std::vector<float> cosines, sines;

  bool serves(const Rope& options, int64_t positions, int64_t pairs) const {
    return theta == options.theta && half == pairs && offset <= options.offset &&
           options.offset + positions <= offset + count;
  }
  void fill(const Rope& options, int64_t positions, int64_t pairs);
};

/// Computes 1 / theta^(2i/D) and its product with the position in f32, as Hugging Face's modelling
/// code does.
void RopeTable::fill(const Rope& options, int64_t positions, int64_t pairs) {
  count = 0;  // invalid until complete
  theta = options.theta;
  offset = options.offset;
  half = pairs;
  std::vector<float> frequency(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(2 * half);
    const auto power = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    frequency[static_cast<size_t>(i)] = 1.0f / power;
  }
  cosines.resize(static_cast<size_t>(positions * half));
  sines.resize(cosines.size());
  parallel_for(positions, grain_of(half * 4), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const auto position = static_cast<float>(offset + p);
      float *c = &cosines[static_cast<size_t>(p * half)],
            *s = &sines[static_cast<size_t>(p * half)];
#pragma GCC ivdep
      for (int64_t i = 0; i < half; ++i) {
        const float angle = position * frequency[static_cast<size_t>(i)];
        c[i] = cos(angle);
        s[i] = sin(angle);
      }
    }
  });
  count = positions;
}

/// Returns the table, cached from the last call: all layers of a model use the same one.
static const RopeTable& rope_table(const Rope& options, int64_t positions, int64_t pairs) {
  static thread_local RopeTable last;
  if (!last.serves(options, positions, pairs)) last.fill(options, positions, pairs);
  return last;
}

template <class C>
struct Rotation {
  WEFT_FN Pair<C> operator()(C a, C b, C cosine, C sine) const {
    return {a * cosine - b * sine, b * cosine + a * sine};
  }
};

template <class C>
static void rotate_row(int64_t half, C* y, const C* x, const float* cosines, const float* sines,
                       C sign) {
  const Rotation<C> rotate;
#pragma GCC ivdep
  for (int64_t i = 0; i < half; ++i) {
    const Pair<C> turned =
        rotate(x[i], x[i + half], static_cast<C>(cosines[i]), sign * static_cast<C>(sines[i]));
    y[i] = turned.first;
    y[i + half] = turned.second;
  }
}

void rope(const MemoryBlock& y, const MemoryBlock& x, int sequence_dim, const Rope& options) {
  const RopeRows rows(y, x, sequence_dim);
  const int64_t half = rows.half;
  if (half == 0 || rows.x.count() == 0) return;
  const RopeTable& table = rope_table(options, rows.positions, half);
  const int64_t first = options.offset - table.offset;
  visit_compute_floating("rope", x.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    parallel_for(rows.x.count(), grain_of(rows.x.size()), [&](int64_t begin, int64_t end) {
      RowReader<C> read(rows.x, end);
      RowWriter<C> write(rows.y, end);
      for (int64_t r = begin; r < end; ++r) {
        const auto at = static_cast<size_t>((first + r / rows.inside % rows.positions) * half);
        rotate_row(half, write.begin(r), read(r), &table.cosines[at], &table.sines[at],
                   options.inverse ? C(-1) : C(1));
        write.end();
      }
    });
  });
}

}  // namespace weft::host
