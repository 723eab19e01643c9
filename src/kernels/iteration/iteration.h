// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "src/kernels/iteration/lines.h"
#include "weft/block.h"

namespace weft {

inline constexpr int kMaxIterated = 8;

/// One loop nest for several blocks: dims of size 1 are removed, dims that are contiguous in all
/// blocks are merged, and the first block's strides fall from outer to inner. Has at least one dim.
class Iteration {
 public:
  /// Iterates over `shape`, to which each of `blocks` broadcasts (aligned from the right; missing
  /// dims have size 1); std::invalid_argument "what: ..." otherwise.
  Iteration(const char* what, const Shape& shape, const MemoryBlock* const* blocks, int count);

  int ndim() const { return ndim_; }
  int64_t size(int dim) const { return shape_[static_cast<size_t>(dim)]; }
  int64_t inner() const { return size(ndim_ - 1); }
  /// The number of inner lines.
  int64_t outer() const { return outer_; }

  int64_t stride(int block, int dim) const {
    return blocks_[static_cast<size_t>(block)].strides[static_cast<size_t>(dim)];
  }
  int64_t inner_stride(int block) const { return stride(block, ndim_ - 1); }
  /// Returns whether the block's elements are contiguous in the order of the loops.
  bool is_dense(int block) const;
  int count() const { return count_; }
  const MemoryBlock& block(int block) const { return *blocks_[static_cast<size_t>(block)].block; }
  /// Returns line `outer` of a block, starting at element `inner`.
  Line line(int block, int64_t outer, int64_t inner) const;
  /// Returns whether the block is contiguous along the dim before the inner one.
  bool is_transposed(int block) const {
    return ndim_ > 1 && inner_stride(block) > 1 && stride(block, ndim_ - 2) == 1;
  }

 private:
  struct Strided {
    const MemoryBlock* block;
    std::array<int64_t, kMaxDims> strides;
  };
  void add(const char* what, const Shape& shape, const MemoryBlock& block);
  void sort();
  void merge();

  int ndim_ = 0;
  int count_ = 0;
  int64_t outer_ = 1;
  std::array<int64_t, kMaxDims> shape_;
  std::array<Strided, kMaxIterated> blocks_;
};

/// Walks the lines of an Iteration, starting at line `outer`.
class LineWalk {
 public:
  LineWalk(const Iteration& loops, int64_t outer, int64_t inner);
  /// Returns the current line of a block, from the starting element on.
  const Line& line(int block) const { return lines_[static_cast<size_t>(block)]; }
  const Iteration& loops() const { return loops_; }
  void next();

 private:
  void move(int dim, int64_t steps);

  const Iteration& loops_;
  std::array<Line, kMaxIterated> lines_;
  std::array<int64_t, kMaxDims> index_;
};

}  // namespace weft
