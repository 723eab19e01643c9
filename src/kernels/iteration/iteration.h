// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>

#include "src/base/numeric.h"
#include "weft/block.h"

namespace weft {

/// n elements, `stride` elements apart.
struct Line {
  DType dtype;
  void* data;
  int64_t stride = 1;
};

/// The elements of a block from element `offset` on.
inline Line line_at(const MemoryBlock& block, int64_t offset, int64_t stride = 1) {
  return {block.dtype, element_at(block.data, offset, block.dtype), stride};
}

/// The line from its element `elements` on.
inline Line moved(Line line, int64_t elements) {
  line.data = element_at(line.data, elements * line.stride, line.dtype);
  return line;
}

/// Converts n elements: (to, its stride, from, its stride, n).
using LineConverter = void (*)(void*, int64_t, const void*, int64_t, int64_t);
LineConverter line_converter(DType to, DType from);

/// to = from, n elements, converted: floats to integers by truncation, integers to integers by the
/// lower bits, anything to bool by "is not zero". The two must be disjoint or the same.
inline void convert_line(const Line& to, const Line& from, int64_t n) {
  line_converter(to.dtype, from.dtype)(to.data, to.stride, from.data, from.stride, n);
}

/// The same to or from dense elements of a compute type.
template <class C> void load_line(C* to, const Line& from, int64_t n) {
  convert_line({dtype_of<C>, to}, from, n);
}
/// Returns n elements as dense C, through `buffer` when they are not.
template <class C> const C* dense_line(const Line& line, int64_t n, C* buffer) {
  if (line.dtype == dtype_of<C> && line.stride == 1) return static_cast<const C*>(line.data);
  load_line(buffer, line, n);
  return buffer;
}
template <class C> void store_line(const Line& to, const C* from, int64_t n) {
  convert_line(to, {dtype_of<C>, const_cast<C*>(from)}, n);
}

/// Maximum number of adjacent lines that are moved together: a cache line of floats.
inline constexpr int64_t kSideBySide = 16;

/// The same for `lines` adjacent lines: each starts one element after the one before it. The dense
/// ones begin `pitch` elements apart. Cache lines are read and written once; line by line, each
/// would be touched as often as it has elements.
template <class C>
void load_side_by_side(C* to, int64_t pitch, const Line& from, int64_t lines, int64_t n);
template <class C>
void store_side_by_side(const Line& to, const C* from, int64_t pitch, int64_t lines, int64_t n);

inline constexpr int kMaxIterated = 8;

/// One loop nest for several blocks: dims of size 1 are removed, dims that are contiguous in all
/// blocks are merged, and the first block's strides fall from outer to inner. Has at least one dim.
class Iteration {
 public:
  /// Iterates over `shape`, to which each of `blocks` broadcasts (aligned from the right; missing
  /// dims have size 1); std::invalid_argument "what: ..." otherwise.
  Iteration(const char* what, const Shape& shape, const MemoryBlock* const* blocks, int count);
  Iteration(const char* what, const Shape& shape, std::initializer_list<const MemoryBlock*> blocks)
      : Iteration(what, shape, blocks.begin(), static_cast<int>(blocks.size())) {}

  int ndim() const { return ndim_; }
  int64_t size(int dim) const { return shape_[dim]; }
  int64_t inner() const { return size(ndim_ - 1); }
  /// The number of inner lines.
  int64_t outer() const { return outer_; }

  int64_t stride(int block, int dim) const { return blocks_[block].strides[dim]; }
  int64_t inner_stride(int block) const { return stride(block, ndim_ - 1); }
  /// Returns whether the block's elements are contiguous in the order of the loops.
  bool is_dense(int block) const;
  int count() const { return count_; }
  const MemoryBlock& block(int block) const { return *blocks_[block].block; }
  /// Returns the offset of element `inner` of line `outer` of a block, in elements.
  int64_t offset(int block, int64_t outer, int64_t inner) const;
  /// Returns line `outer` of a block, starting at element `inner`.
  Line line(int of, int64_t outer, int64_t inner) const {
    return line_at(block(of), offset(of, outer, inner), inner_stride(of));
  }
  /// Returns whether the block is contiguous along the dim before the inner one.
  bool is_transposed(int block) const {
    return ndim_ > 1 && inner_stride(block) > 1 && stride(block, ndim_ - 2) == 1;
  }

 private:
  struct Strided {
    const MemoryBlock* block;
    int64_t strides[kMaxDims];
  };
  void add(const char* what, const Shape& shape, const MemoryBlock& block);
  void sort();
  void merge();

  int ndim_ = 0;
  int count_ = 0;
  int64_t outer_ = 1;
  int64_t shape_[kMaxDims];
  Strided blocks_[kMaxIterated];
};

/// Walks the lines of an Iteration, starting at line `outer`.
class LineWalk {
 public:
  LineWalk(const Iteration& loops, int64_t outer, int64_t inner);
  /// Returns the current line of a block, from the starting element on.
  const Line& line(int block) const { return lines_[block]; }
  const Iteration& loops() const { return loops_; }
  void next();

 private:
  void move(int dim, int64_t steps);

  const Iteration& loops_;
  Line lines_[kMaxIterated];
  int64_t sizes_[kMaxIterated];
  int64_t index_[kMaxDims];
};

}  // namespace weft
