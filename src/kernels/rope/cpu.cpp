// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/rope/rope.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "src/base/independent.h"
#include "src/base/parallel.h"
#include "src/kernels/math/math.h"
#include "src/kernels/rows/rows.h"
#include "weft/error.h"

namespace weft {

/// Returns the number of pairs, which the frequencies state.
static int64_t pairs_of(const MemoryBlock& frequencies, int64_t size) {
  const Shape& shape = frequencies.shape;
  if (frequencies.dtype != DType::f32 || shape.ndim() != 1 || !frequencies.is_dense()) {
    fail("rope: frequencies are ", frequencies.dtype, ' ', shape, ", expected a dense f32 vector");
  }
  if (2 * shape[0] > size) {
    fail("rope: number of frequencies is ", shape[0], ", expected at most ", size / 2,
         ", half the size of a head");
  }
  return shape[0];
}

RopeRows::RopeRows(const MemoryBlock& y_block, const MemoryBlock& x_block, int sequence_dim,
                   const MemoryBlock* stated, const MemoryBlock* places) {
  const Shape& shape = x_block.shape;
  const int last = shape.ndim() - 1;
  if (last < 1 || sequence_dim < 0 || sequence_dim >= last) {
    fail("rope: dim of positions is ", sequence_dim, ", expected one before the last of ", shape);
  }
  if (!stated && shape[last] % 2 != 0)
    fail("rope: size of a head is ", shape[last], ", expected an even one");
  x = Rows(x_block, last), y = Rows(y_block, last);
  check_rows("rope", x, y);
  pairs = stated ? pairs_of(*stated, x.size()) : x.size() / 2, positions = shape[sequence_dim];
  if (stated) frequencies = static_cast<const float*>(stated->data);
  for (int i = sequence_dim + 1; i < last; ++i) inside *= shape[i];
  if (!places) return;
  given = static_cast<const int64_t*>(places->data);
  for (int i = 0; i < sequence_dim; ++i) positions *= shape[i];
  if (places->dtype != DType::i64 || places->numel() != positions || !places->is_dense()) {
    fail("rope: positions are ", places->dtype, ' ', places->shape, ", expected ", positions,
         " dense int64 numbers");
  }
}

}  // namespace weft

namespace weft::host {

/// Cosines and sines of positions offset .. offset + count - 1, or of given ones, one for each
/// frequency.
struct RopeTable {
  /// The theta of the frequencies; 0 when they were given.
  double theta = 0;
  int64_t offset = 0, count = 0;
  std::vector<float> frequencies, cosines, sines;

  bool serves(const Rope& options, const RopeRows& rows) const {
    const auto pairs = static_cast<size_t>(rows.pairs);
    if (frequencies.size() != pairs || offset > options.offset ||
        options.offset + rows.positions > offset + count) {
      return false;
    }
    return rows.frequencies ? std::equal(frequencies.begin(), frequencies.end(), rows.frequencies)
                            : theta == options.theta;
  }
  /// Computes 1 / theta^(2i/D) and its product with the position in f32, as Hugging Face's
  /// modelling code does.
  void fill(const Rope& options, const RopeRows& rows) {
    const int64_t half = rows.pairs, positions = rows.positions;
    count = 0;  // invalid until complete
    theta = rows.frequencies ? 0 : options.theta;
    offset = options.offset;
    frequencies.resize(static_cast<size_t>(half));
    for (int64_t i = 0; i < half; ++i) {
      const float exponent = static_cast<float>(2 * i) / static_cast<float>(2 * half);
      const auto power = static_cast<float>(std::pow(options.theta, static_cast<double>(exponent)));
      frequencies[static_cast<size_t>(i)] = rows.frequencies ? rows.frequencies[i] : 1.0f / power;
    }
    cosines.resize(static_cast<size_t>(positions * half));
    sines.resize(cosines.size());
    parallel_for(positions, grain_of(half * 4), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        const auto position = static_cast<float>(rows.given ? rows.given[p] : offset + p);
        float *c = &cosines[static_cast<size_t>(p * half)],
              *s = &sines[static_cast<size_t>(p * half)];
        WEFT_INDEPENDENT
        for (int64_t i = 0; i < half; ++i) {
          const float angle = position * frequencies[static_cast<size_t>(i)];
          c[i] = cos(angle);
          s[i] = sin(angle);
        }
      }
    });
    count = positions;
  }
};

/// Returns a table, cached from an earlier call: a model has at most two, one for its layers with a
/// sliding window.
static const RopeTable& rope_table(const Rope& options, const RopeRows& rows) {
  WEFT_STATIC_TLS static thread_local const auto tables = std::make_unique<RopeTable[]>(2);
  WEFT_STATIC_TLS static thread_local int last = 0;
  for (int i : {last, 1 - last}) {
    if (tables[i].serves(options, rows)) return tables[last = i];
  }
  last = 1 - last;
  tables[last].fill(options, rows);
  return tables[last];
}

template <class C>
static void rotate_row(int64_t half, C* y, const C* x, const float* cosines, const float* sines,
                       C scale, C sign) {
  WEFT_INDEPENDENT
  for (int64_t i = 0; i < half; ++i) {
    const C a = x[i], b = x[i + half], cosine = scale * static_cast<C>(cosines[i]);
    const C sine = sign * scale * static_cast<C>(sines[i]);
    y[i] = a * cosine - b * sine;
    y[i + half] = b * cosine + a * sine;
  }
}

void rope(const MemoryBlock& y, const MemoryBlock& x, int sequence_dim, const Rope& options,
          const MemoryBlock* frequencies, const MemoryBlock* positions) {
  const RopeRows rows(y, x, sequence_dim, frequencies, positions);
  const int64_t half = rows.pairs;
  if (rows.x.size() == 0 || rows.x.count() == 0) return;
  RopeTable of_tokens;
  if (rows.given) of_tokens.fill(options, rows);
  const RopeTable& table = rows.given ? of_tokens : rope_table(options, rows);
  const int64_t first = options.offset - table.offset;
  visit_compute_floating("rope", x.dtype, [&]<class C>(Type<C>) {
    parallel_for(rows.x.count(), grain_of(rows.x.size()), [&](int64_t begin, int64_t end) {
      RowReader<C> read(rows.x, end);
      RowWriter<C> write(rows.y, end);
      for (int64_t r = begin; r < end; ++r) {
        const auto at = static_cast<size_t>((first + r / rows.inside % rows.positions) * half);
        C* to = write.begin(r);
        const C* from = read(r);
        rotate_row(half, to, from, table.cosines.data() + at, table.sines.data() + at,
                   static_cast<C>(options.scale), options.inverse ? C(-1) : C(1));
        for (int64_t i = 2 * half; to != from && i < rows.x.size(); ++i) to[i] = from[i];
        write.end();
      }
    });
  });
}

}  // namespace weft::host
