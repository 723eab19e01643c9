// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "src/kernels/kernel.h"
#include "weft/placement.h"

namespace weft {

/// Kinds of reduction. With no elements the results are 0, 1, the lowest value, the greatest value
/// (so that empty shards combine correctly), 0, 0, false, true. `sum_numbers` leaves out NaNs.
enum class Reduction : uint8_t { sum, product, max, min, sum_squares, sum_numbers, any, all };

/// out = factor * reduction of `in` over `dims` (not negative, each once, any order), + out when
/// `accumulate`. `out` has in's shape with those dims of size 1, or without them. Floats accumulate
/// in f32 (f64 for f64), integers in i64, in an order that does not depend on the number of threads
/// (on the CPU: fixed accumulators and blocks that merge in pairs, columns in three stages). NaN
/// makes max and min NaN.
WEFT_KERNEL(void, reduce,
            (Reduction reduction, const MemoryBlock& out, const MemoryBlock& in, const Dims& dims,
             double factor = 1, bool accumulate = false),
            (reduction, out, in, dims, factor, accumulate))

/// Throws std::invalid_argument unless `out` has a dtype of indices.
void check_indices(const char* what, const MemoryBlock& out);

/// out = index (i32 or i64) along `dim` of the greatest (`greatest`) or least element; the first of
/// equal ones, or of NaNs; -1 when there are no elements. `out` has in's shape without `dim`, or
/// with size 1 there.
WEFT_KERNEL(void, arg_reduce,
            (const MemoryBlock& out, const MemoryBlock& in, int dim, bool greatest),
            (out, in, dim, greatest))

/// out = first index along `dim`, plus `offset`, where `in` equals `value` (shaped as `out`; NaN
/// equals NaN). Where there is none, the greatest value of out's dtype, so that a min over ranks
/// yields the index.
WEFT_KERNEL(void, index_of,
            (const MemoryBlock& out, const MemoryBlock& in, const MemoryBlock& value, int dim,
             int64_t offset = 0),
            (out, in, value, dim, offset))

/// out[...] = the sum over i of a[..., i] * b[..., i], of dense blocks of one dtype, f32 or f64.
/// Products are added in blocks whose sums do not depend on the number of threads.
WEFT_KERNEL(void, dot_rows, (const MemoryBlock& out, const MemoryBlock& a, const MemoryBlock& b),
            (out, a, b))

namespace cuda {
/// out = the sources (blocks of out's shape and one dtype) combined element by element in order, +
/// out when `accumulate`. GPU version of reduce_n of src/comm/reduce.cpp, ordered by the current
/// stream of out's device. `out` may be one of the sources.
void reduce_blocks(ReduceOp op, std::span<const MemoryBlock> sources, const MemoryBlock& out,
                   bool accumulate);
}  // namespace cuda

}  // namespace weft
