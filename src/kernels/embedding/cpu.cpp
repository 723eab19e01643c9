// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/embedding/embedding.h"

#include <vector>

#include "src/base/independent.h"
#include "src/base/parallel.h"
#include "src/kernels/copy/copy.h"
#include "weft/error.h"

namespace weft {

SelectedRows::SelectedRows(const MemoryBlock& rows_block, const MemoryBlock& table_block,
                           const MemoryBlock& ids_block, int64_t first)
    : rows(last_rows(rows_block)),
      table(table_block, 1),
      ids(Rows::values("embedding", ids_block, rows)),
      offset(first) {
  if (table_block.shape.ndim() != 2 || table.size() != rows.size()) {
    fail("embedding: table is ", table_block.shape, ", expected rows of ", rows.size());
  }
}

}  // namespace weft

namespace weft::host {

void gather_rows(const MemoryBlock& out, const MemoryBlock& table, const MemoryBlock& ids,
                 int64_t offset) {
  const SelectedRows selected(out, table, ids, offset);
  const Rows& rows = selected.rows;
  const int64_t n = rows.size();
  const double zero = 0;
  parallel_for(rows.count(), grain_of(n), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t index = selected.index(r);
      const Line none{DType::f64, const_cast<double*>(&zero), 0};
      convert_line(rows.line(r), index >= 0 ? selected.table.line(index) : none, n);
    }
  });
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
      WEFT_INDEPENDENT
      for (int64_t i = 0; i < end - begin; ++i) to[i] += values[i];
    }
  });
}

void scatter_add_rows(const MemoryBlock& table, const MemoryBlock& rows, const MemoryBlock& ids,
                      int64_t offset, bool accumulates) {
  const SelectedRows selected(rows, table, ids, offset);
  std::vector<int64_t> indices(static_cast<size_t>(selected.ids.count()));
  for (size_t r = 0; r < indices.size(); ++r) {
    indices[r] = selected.index(static_cast<int64_t>(r));
  }
  visit_compute_floating("embedding", table.dtype, [&]<class C>(Type<C>) {
    if (table.dtype == dtype_of<C> && table.is_dense()) {
      if (!accumulates) host::fill(table, 0);
      return scatter_add(table.as<C>(), selected.rows, indices);
    }
    std::vector<C> sums(static_cast<size_t>(table.numel()));
    scatter_add(sums.data(), selected.rows, indices);
    const MemoryBlock total = dense_block(sums.data(), dtype_of<C>, table.shape);
    accumulates ? accumulate(table, total) : host::copy(table, total);
  });
}

}  // namespace weft::host
