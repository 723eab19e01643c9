// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "src/kernels/copy/copy.h"
#include "src/kernels/rows/rows.h"
#include "weft/extend/parts.h"
#include "weft/ops/along_dim.h"
#include "weft/ops/shapes.h"

namespace weft {

/// Returns elements and indices that have `dim` with size 1, or if not `keepdims` without the dim.
inline ValuesAndIndices without_dim(const ValuesAndIndices& found, int dim, bool keepdims) {
  if (keepdims) return found;
  return {squeeze(found.values, dim), squeeze(found.indices, dim)};
}

/// Results of the op `sort`: sorted elements and their indices.
Tensors sort_with_indices(const Tensor& a, int dim, bool descending);

// sorted_first and sorted_at return elements and their indices (i64) along `dim`, which is not
// negative and may be sharded.

/// The first `k` elements along `dim`, sorted.
Tensors sorted_first(const Tensor& a, int dim, int64_t k, bool descending);

/// The elements at `positions` (i64; shaped as `a` but along `dim`) of the sorted rows.
Tensors sorted_at(const Tensor& a, const Tensor& positions, int dim);

// Sorting and selection along a dim that is sharded. Each rank sorts its part of the rows. Ranks
// find where a position of the whole sorted row lies in the parts by bisecting the values' order as
// integers: in each round they sum how many elements of their parts come before some candidates.

/// This rank's part of rows, sorted, in host memory.
class SortedPart {
 public:
  /// Sorts `in`, whose last dim is this rank's `own` part of the rows; keeps the first `kept`
  /// elements of each.
  SortedPart(const MemoryBlock& in, bool descending, const Chunk& own, int64_t kept);

  int64_t rows() const { return rows_; }
  /// Elements of a row that are kept.
  int64_t size() const { return size_; }
  DType dtype() const { return values_.block.dtype; }
  const std::byte* value(int64_t row, int64_t i) const {
    return values_.block.as<std::byte>() + (row * size_ + i) * element_;
  }
  int64_t index(int64_t row, int64_t i) const {
    return indices_.block.as<int64_t>()[row * size_ + i];
  }

  /// The place of a position of the whole sorted row in this part.
  struct Place {
    /// The number of elements of this part before it.
    int64_t before;
    /// True when this part has the element.
    bool here;
  };
  /// Finds `positions` [rows, n] in the whole sorted rows from row `first` on, counted among the
  /// parts' kept elements; n = `per_row`. Communicates.
  std::vector<Place> locate(const Parts& parts, int64_t first, std::span<const int64_t> positions,
                            int64_t per_row) const;

 private:
  uint64_t key(int64_t row, int64_t i) const;
  int64_t count_before(int64_t row, uint64_t key) const;
  std::vector<uint64_t> keys_at(const Parts& parts, int64_t first,
                                std::span<const int64_t> positions, int64_t per_row) const;

  int64_t rows_, size_, element_;
  bool descending_;
  DenseMemory values_, indices_;
};

/// Elements of rows on their way between parts: for each row how many, their indices in the whole
/// row, and their values.
class SortedRuns {
 public:
  /// Bytes of `elements` elements of `rows` rows.
  static int64_t bytes_for(int64_t rows, int64_t elements, DType dtype);
  /// Writes elements [from[r], to[r]) of each row of `part` from row `first` on.
  static void write(std::byte* memory, const SortedPart& part, int64_t first,
                    std::span<const int64_t> from, std::span<const int64_t> to);

  /// Reads what the parts sent for `rows` rows.
  SortedRuns(const Parcels& parcels, int parts, int64_t rows, DType dtype, bool descending);
  /// Merges the next row; returns its elements in order.
  struct Element {
    uint64_t key;
    int64_t index;
    const std::byte* value;
  };
  std::span<const Element> next();

 private:
  struct Run {
    const int64_t *counts, *indices;
    const std::byte* values;
  };
  std::vector<Run> runs_;
  std::vector<Element> merged_;
  std::vector<size_t> starts_;
  DType dtype_;
  bool descending_;
  int64_t row_ = 0;
};

/// Writes elements of a row, and their indices, to the first places of that row of the results.
void store_elements(const Rows& values, const Rows& indices, int64_t row,
                    std::span<const SortedRuns::Element> elements);

/// The number of rows to treat together, so that `numbers` 8-byte numbers a row need no more memory
/// than the part. Equal on all ranks.
int64_t rows_together(const Parts& parts, int64_t rows, int64_t numbers);

}  // namespace weft
