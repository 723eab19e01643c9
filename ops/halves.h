// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/copy/copy.h"
#include "weft/extend/call.h"
#include "weft/extend/fixed_sums.h"

namespace weft {

/// The end of the first half of dim `dim` of operand `operand`, as two ranks cut it, if this thread
/// adds in halves (FixedSums) and has both of them; else 0.
inline int64_t half_of(const Call& c, int operand, int dim) {
  if (!FixedSums::current() || dim < 0) return 0;
  const int64_t size = c.in_shape(operand)[dim];
  return size > 1 && c.in_box(operand).shape[dim] == size ? (size + 1) / 2 : 0;
}

/// Indices [begin, end) of dim `dim`; an absent block stays absent.
inline MemoryBlock range_of(const MemoryBlock& block, int dim, int64_t begin, int64_t end) {
  if (block.shape.ndim() <= dim || (begin == 0 && end == block.shape[dim])) return block;
  Box box{Dims::filled(block.shape.ndim(), 0), block.shape};
  box.offset[dim] = begin, box.shape[dim] = end - begin;
  return block.part(box);
}

/// out = the sum over [0, size), which add(begin, end, to, accumulate) takes over a range: by the
/// halves [0, half) and [half, size) unless `half` is 0. Adds to what `out` holds if `accumulate`.
template <class Add>
void add_by_halves(const MemoryBlock& out, bool accumulate, int64_t half, int64_t size,
                   const Add& add) {
  if (half == 0) return add(0, size, out, accumulate);
  const DenseMemory second(out.shape, out.dtype, out.device);
  if (!accumulate) {
    add(0, half, out, false);
    add(half, size, second.block, false);
    return weft::accumulate(out, second.block);
  }
  const DenseMemory first(out.shape, out.dtype, out.device);
  add(0, half, first.block, false);
  add(half, size, second.block, false);
  weft::accumulate(first.block, second.block);
  weft::accumulate(out, first.block);
}

}  // namespace weft
