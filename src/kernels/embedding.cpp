// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/embedding.h"

#include <cstring>
#include <vector>

#include "src/kernels/copy.h"
#include "src/kernels/lines.h"
#include "src/parallel.h"

namespace weft {

/// The ids in row-major order.
static std::vector<int64_t> flat_ids(const char* what, const Block& ids) {
  if (ids.dtype != DType::i64 && ids.dtype != DType::i32) {
    fail(what, ": ids are ", ids.dtype, ", not i32 or i64");
  }
  std::vector<int64_t> flat(static_cast<size_t>(ids.numel()));
  copy(dense_block(flat.data(), DType::i64, ids.shape), ids);
  return flat;
}

static void check_rows(const char* what, const Block& rows, const Block& table, const Block& ids) {
  const int64_t width = table.shape.back();
  if (table.shape.ndim() != 2 || rows.shape.ndim() < 1 || rows.shape.back() != width ||
      rows.numel() != ids.numel() * width) {
    fail(what, ": rows ", rows.shape, " do not fit a table ", table.shape, " and ids ", ids.shape);
  }
  if (table.strides[1] != 1 && width > 1) fail(what, ": the rows of the table must be dense");
  if (!rows.is_dense()) fail(what, ": the rows must be dense");
}

void gather_rows(const Block& out, const Block& table, const Block& ids, int64_t offset) {
  check_rows("gather_rows", out, table, ids);
  if (out.dtype != table.dtype) fail("gather_rows: ", table.dtype, " rows go to ", out.dtype);
  const std::vector<int64_t> flat = flat_ids("gather_rows", ids);
  const auto element = static_cast<int64_t>(size_of(table.dtype));
  const int64_t width = table.shape[1] * element;
  parallel_for(ids.numel(), grain_of(table.shape[1]), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = flat[static_cast<size_t>(i)] - offset;
      char* to = out.as<char>() + i * width;
      if (row < 0 || row >= table.shape[0]) {
        std::memset(to, 0, static_cast<size_t>(width));
      } else {
        std::memcpy(to, table.as<const char>() + row * table.strides[0] * element,
                    static_cast<size_t>(width));
      }
    }
  });
}

/// Columns that one thread adds: a cache line's or more, so that threads share none.
static constexpr int64_t kColumnChunk = 64;

void scatter_add_rows(const Block& table, const Block& rows, const Block& ids, int64_t offset,
                      bool accumulate, std::optional<int64_t> skipped) {
  check_rows("scatter_add_rows", rows, table, ids);
  if (!accumulate) fill(table, 0);
  const std::vector<int64_t> flat = flat_ids("scatter_add_rows", ids);
  const int64_t width = table.shape[1], chunks = (width + kColumnChunk - 1) / kColumnChunk;
  visit_floating("scatter_add_rows", table.dtype, [&](auto table_type) {
    visit_floating("scatter_add_rows", rows.dtype, [&](auto row_type) {
      using T = typename decltype(table_type)::type;
      using R = typename decltype(row_type)::type;
      using C = Compute<T>;
      const int64_t grain = grain_of(ids.numel() * kColumnChunk);
      parallel_for(chunks, grain, [&](int64_t begin, int64_t end) {
        const int64_t first = begin * kColumnChunk, last = std::min(width, end * kColumnChunk);
        for (size_t i = 0; i < flat.size(); ++i) {
          const int64_t row = flat[i] - offset;
          if (row < 0 || row >= table.shape[0] || (skipped && flat[i] == *skipped)) continue;
          T* to = table.as<T>() + row * table.strides[0];
          const R* from = rows.as<const R>() + static_cast<int64_t>(i) * width;
#pragma GCC ivdep
          for (int64_t j = first; j < last; ++j) {
            to[j] = static_cast<T>(static_cast<C>(to[j]) + static_cast<C>(from[j]));
          }
        }
      });
    });
  });
}

std::optional<int64_t> find_outside(const Block& ids, int64_t low, int64_t high,
                                    std::optional<int64_t> allowed) {
  for (int64_t id : flat_ids("ids", ids)) {
    if ((id < low || id >= high) && !(allowed && id == *allowed)) return id;
  }
  return std::nullopt;
}

}  // namespace weft
