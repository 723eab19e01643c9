// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "mesh/layout.h"
#include "weft/communicator.h"

namespace weft {

/// How the rows of a tensor [..., width], which one axis cuts along a dim before the last, are
/// split into parts that are gathered, or reduced and scattered, one after the other. Parts are
/// ranges of dim 0 if it has as many elements and is not the cut dim, else ranges of each rank's
/// part of the cut dim. No rank has to pack: a collective of a part sends and receives several
/// pieces in their places.
class RowParts {
 public:
  /// `cut` is a layout in which only `axis` cuts `dim`; `whole` is the same replicated along it.
  RowParts(const Layout& cut, const Layout& whole, int axis, int dim, int parts);

  int count() const { return count_; }
  int dim() const { return dim_; }
  /// Calls `use` with blocks that make up part `part` of `a` and `b`, two whole blocks [..., width]
  /// of this rank. The blocks may have one dim more.
  void for_blocks(int part, const MemoryBlock& a, const MemoryBlock& b,
                  const std::function<void(const MemoryBlock&, const MemoryBlock&)>& use) const;
  /// The pieces of an all-gather of a part from `own` to `whole`, or with `scatters` those of a
  /// reduce-scatter from `whole` to `own`; both blocks are dense. Valid while `counts` is.
  std::vector<Piece> pieces(int part, const MemoryBlock& own, const MemoryBlock& whole,
                            bool scatters, std::vector<std::vector<int64_t>>& counts) const;
  /// Elements of a row that a part has on this rank, and on the others together.
  int64_t own_rows(int part) const;
  int64_t other_rows(int part) const;

 private:
  struct Range {
    int64_t begin, end;
  };
  Range range(int64_t size, int part) const {
    return {size * part / count_, size * (part + 1) / count_};
  }
  int64_t rows_of(int rank, int part) const;
  Range outer(int part) const;
  /// What a rank has of a part of the cut dim.
  Range within(int rank, int part) const;

  int dim_;
  int count_;
  bool by_first_dim_;
  int self_ = 0;
  /// Each rank's size of the cut dim, and where it begins.
  std::vector<int64_t> lengths_, begins_;
  bool is_even_;
  /// Products of the local sizes before the cut dim (all, and without dim 0) and between it and the
  /// last one.
  int64_t outer_ = 1, outer_of_first_ = 1, inner_ = 1, first_ = 1, size_ = 0;
};

}  // namespace weft
