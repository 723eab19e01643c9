// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/cross_entropy/cross_entropy.h"

#include <optional>

#include "src/base/parallel.h"
#include "src/device/cuda/streams.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/cross_entropy/cuda.h"
#include "src/kernels/map/map.h"
#include "src/kernels/rows/row_statistics.h"

namespace weft {

/// Logits as rows, and values per row.
struct LogitRows {
  Rows logits, ids;

  LogitRows(const char* what, const Block& logits_block, const Block& ids_block)
      : logits(logits_block, logits_block.shape.ndim() - 1), ids(values(what, ids_block)) {}
  Rows values(const char* what, const Block& block) const {
    return Rows::values(what, block, logits);
  }
};

/// Returns x[id - offset], or 0 when that index is not in [0, n).
template <class C>
static C picked_from(const C* x, int64_t n, int64_t id, int64_t offset) {
  const int64_t j = id - offset;
  return j >= 0 && j < n ? x[j] : C(0);
}

void pick(const Block& picked, const Block& logits, const Block& ids, int64_t offset) {
  if (cuda::kWithCuda && cuda::on_cuda(logits)) return cuda::pick(picked, logits, ids, offset);
  const LogitRows rows("pick", logits, ids);
  const Rows results = rows.values("pick", picked);
  const int64_t n = rows.logits.size();
  visit_compute_floating("pick", logits.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    for (int64_t r = 0; r < rows.logits.count(); ++r) {
      const int64_t j = RowValues<int64_t>(rows.ids)[r] - offset;
      const Line line = rows.logits.line(r);
      C value = 0;
      if (j >= 0 && j < n) {
        const int64_t bytes = j * line.stride * static_cast<int64_t>(size_of(line.dtype));
        value = load_element<C>(line.dtype, static_cast<const char*>(line.data) + bytes);
      }
      RowValues<C>(results).set(r, value);
    }
  });
}

void cross_entropy(const Block& loss, const Block& logits, const Block& ids, int64_t ignored) {
  if (cuda::kWithCuda && cuda::on_cuda(logits)) {
    return cuda::cross_entropy(loss, logits, ids, ignored);
  }
  const LogitRows rows("cross_entropy", logits, ids);
  const Rows losses = rows.values("cross_entropy", loss);
  const int64_t n = rows.logits.size();
  visit_compute_floating("cross_entropy", logits.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    parallel_for(rows.logits.count(), grain_of(n), [&](int64_t begin, int64_t end) {
      RowReader<C> read(rows.logits, end);
      for (int64_t r = begin; r < end; ++r) {
        const int64_t id = RowValues<int64_t>(rows.ids)[r];
        C value = 0;
        if (id != ignored) {
          const C* x = read(r);
          const SoftmaxRow<C> row = softmax_row(x, n);
          value = (row.max - picked_from(x, n, id, 0)) + log(row.sum);
        }
        RowValues<C>(losses).set(r, value);
      }
    });
  });
}

struct LossFromStatistics {
  template <class T>
  WEFT_FN T operator()(T kept, T max, T sum, T picked) const {
    return kept != T(0) ? (finite_or_zero(max) - picked) + log(sum) : T(0);
  }
};

struct IsNot {
  int64_t ignored;
  template <class T>
  WEFT_FN T operator()(T id) const {
    return id != T(ignored) ? T(1) : T(0);
  }
};

void cross_entropy(const Block& loss, const Block& ids, const Block& max, const Block& sum,
                   const Block& picked, int64_t ignored) {
  // One pass marks the rows that count: ids are integers, and the loss is not computed in integers.
  const Block kept = loss;
  map(IsNot{ignored}, kept, ids);
  map_floating(LossFromStatistics{}, loss, kept, max, sum, picked);
}

/// Computes dlogits of one row whose id is not ignored.
template <class C>
static void cross_entropy_row(int64_t n, C* out, const C* x, C factor,
                              const std::optional<SoftmaxRow<C>>& row) {
  if (row) {
    map_row(n, ScaledExp<C>{row->max, factor / row->sum}, out, x);
  } else {
    softmax_of_row(n, out, x, factor);
  }
}

void cross_entropy_backward(const Block& dlogits, const Block& dloss, const Block& logits,
                            const Block& ids, int64_t offset, int64_t ignored, const Block* max,
                            const Block* sum) {
  if (cuda::kWithCuda && cuda::on_cuda(logits)) {
    return cuda::cross_entropy_backward(dlogits, dloss, logits, ids, offset, ignored, max, sum);
  }
  constexpr const char* kWhat = "cross_entropy_backward";
  const LogitRows rows(kWhat, logits, ids);
  const Rows out(dlogits, dlogits.shape.ndim() - 1), upper = rows.values(kWhat, dloss);
  check_rows(kWhat, rows.logits, out);
  const Rows maxima = max ? rows.values(kWhat, *max) : out;
  const Rows sums = sum ? rows.values(kWhat, *sum) : out;
  const int64_t n = rows.logits.size();
  visit_compute_floating(kWhat, logits.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    parallel_for(out.count(), grain_of(n), [&](int64_t begin, int64_t end) {
      RowReader<C> read(rows.logits, end);
      RowWriter<C> write(out, end);
      for (int64_t r = begin; r < end; ++r) {
        const int64_t id = RowValues<int64_t>(rows.ids)[r];
        const C factor = RowValues<C>(upper)[r];
        const C* x = read(r);
        C* row = write.begin(r);
        if (id == ignored) {
          std::fill_n(row, n, C(0));
        } else {
          std::optional<SoftmaxRow<C>> given;
          if (max) {
            given = {finite_or_zero(RowValues<C>(maxima)[r]), sum ? RowValues<C>(sums)[r] : C(1)};
          }
          cross_entropy_row(n, row, x, factor, given);
          if (id >= offset && id < offset + n) row[id - offset] -= factor;
        }
        write.end();
      }
    });
  });
}

void count_kept(const Block& out, const Block& ids, int64_t ignored) {
  if (cuda::kWithCuda && cuda::on_cuda(ids)) return cuda::count_kept(out, ids, ignored);
  const Rows rows(ids, ids.shape.ndim());
  int64_t kept = 0;
  for (int64_t r = 0; r < rows.count(); ++r) kept += RowValues<int64_t>(rows)[r] != ignored;
  fill(out, static_cast<double>(kept));
}

}  // namespace weft
