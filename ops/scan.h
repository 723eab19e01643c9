// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/copy/dense.h"
#include "src/kernels/scan/scan.h"
#include "weft/extend/op.h"

namespace weft {

// Scans along a dim that may be sharded: each rank scans its part for the total, one gathered stage
// gives every rank the totals of all parts, and each rank scans again from the total of the parts
// before its own. Traffic: 8 bytes for each row and other part.

/// Slice `i` of a dim, without the dim.
inline MemoryBlock slice_at(MemoryBlock block, int dim, int64_t i) {
  const int64_t offset = i * block.strides[dim] * static_cast<int64_t>(size_of(block.dtype));
  block.data = block.as<char>() + offset;
  block.shape.erase(dim);
  block.strides.erase(dim);
  return block;
}

/// The dtype in which scans accumulate.
inline DType total_dtype_of(DType dtype) { return is_floating(dtype) ? DType::f64 : DType::i64; }

/// A scan, and the total of no elements.
struct Scan {
  Running kind;
  double identity;
};

/// Writes the total of operand `operand`'s part along `dim` to this part's entry of `totals`.
inline void write_total(const Scan& scan, const MemoryBlock& totals, const MemoryBlock& in, int dim,
                        bool from_end) {
  const int64_t size = in.shape[dim];
  if (size == 0) return fill(totals, scan.identity);
  const DenseMemory scanned(in.shape, total_dtype_of(in.dtype), in.device);
  running_total(scan.kind, scanned.block, in, dim, from_end);
  copy(slice_at(totals, 0, 0), slice_at(scanned.block, dim, from_end ? 0 : size - 1));
}

/// The total of all parts that come before part `part` of `totals` (`from_end`: after it); without
/// memory when there is none.
struct Carry {
  DenseMemory scanned;
  MemoryBlock block;

  Carry(const Scan& scan, const MemoryBlock& totals, int64_t part, bool from_end)
      : scanned(totals.shape, totals.dtype, totals.device) {
    const int64_t last = from_end ? part + 1 : part - 1;
    if (last < 0 || last == totals.shape[0]) return;
    running_total(scan.kind, scanned.block, totals, 0, from_end);
    block = slice_at(scanned.block, 0, last);
  }
  const MemoryBlock* start() const { return block.data ? &block : nullptr; }
};

}  // namespace weft
