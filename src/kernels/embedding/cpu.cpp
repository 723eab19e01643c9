// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/embedding/embedding.h"

#include <vector>

#include "src/base/parallel.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/rows/rows.h"
#include "weft/error.h"

namespace weft::host {

static void check_table(const char* what, const MemoryBlock& table, const Rows& rows) {
  if (table.shape.ndim() == 2 && table.shape[1] == rows.size()) return;
  fail(what, ": table is ", table.shape, ", expected rows of ", rows.size());
}

void gather_rows(const MemoryBlock& out, const MemoryBlock& table, const MemoryBlock& ids,
                 int64_t offset) {
  const Rows rows = last_rows(out);
  const Rows indices = Rows::values("embedding", ids, rows);
  check_table("embedding", table, rows);
  const int64_t n = rows.size();
  const double zero = 0;
  parallel_for(rows.count(), grain_of(n), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t index = value_of<int64_t>(indices, r) - offset;
      const bool here = index >= 0 && index < table.shape[0];
      const Line none{DType::f64, const_cast<double*>(&zero), 0};
      convert_line(rows.line(r),
                   here ? line_at(table, index * table.strides[0], table.strides[1]) : none, n);
    }
  });
}

/// Returns indices into the table, -1 for ids outside it and for `skipped`.
static std::vector<int64_t> table_indices(const MemoryBlock& table, const Rows& ids, int64_t offset,
                                          std::optional<int64_t> skipped) {
  std::vector<int64_t> indices(static_cast<size_t>(ids.count()));
  for (size_t r = 0; r < indices.size(); ++r) {
    const int64_t id = value_of<int64_t>(ids, static_cast<int64_t>(r)), index = id - offset;
    const bool here = index >= 0 && index < table.shape[0] && id != skipped;
    indices[r] = here ? index : -1;
  }
  return indices;
}

/// Adds rows to a table of dense C. Each thread owns a range of columns, so the order of additions
/// is fixed.
template <class C>
static void scatter_add(C* table, const Rows& rows, const std::vector<int64_t>& indices) {
  const int64_t n = rows.size();
  const int64_t grain = std::max<int64_t>(16, grain_of(rows.count()));
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    const bool direct = rows.dtype() == dtype_of<C> && rows.stride() == 1;
    std::vector<C> buffer(static_cast<size_t>(direct ? 0 : end - begin));
    for (size_t r = 0; r < indices.size(); ++r) {
      if (indices[r] < 0) continue;
      const Line line = moved(rows.line(static_cast<int64_t>(r)), begin);
      const C* values = dense_line(line, end - begin, buffer.data());
      C* to = table + indices[r] * n + begin;
#pragma GCC ivdep
      for (int64_t i = 0; i < end - begin; ++i) to[i] += values[i];
    }
  });
}

void scatter_add_rows(const MemoryBlock& table, const MemoryBlock& rows, const MemoryBlock& ids,
                      int64_t offset, bool accumulates, std::optional<int64_t> skipped) {
  const Rows in = last_rows(rows);
  const Rows id_rows = Rows::values("embedding", ids, in);
  check_table("embedding", table, in);
  const std::vector<int64_t> indices = table_indices(table, id_rows, offset, skipped);
  visit_compute_floating("embedding", table.dtype, [&]<class C>(Type<C>) {
    if (table.dtype == dtype_of<C> && table.is_dense()) {
      if (!accumulates) host::fill(table, 0);
      return scatter_add(table.as<C>(), in, indices);
    }
    std::vector<C> sums(static_cast<size_t>(table.numel()));
    scatter_add(sums.data(), in, indices);
    const MemoryBlock total = dense_block(sums.data(), dtype_of<C>, table.shape);
    accumulates ? accumulate(table, total) : host::copy(table, total);
  });
}

}  // namespace weft::host
