// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft {

/// How elements become one. Of no elements: 0, 1, the lowest or greatest value (so that empty
/// shards combine correctly), 0, false, true.
enum class Reduction : uint8_t { sum, product, max, min, sum_squares, any, all };

/// out = factor * reduction of `in` over `dims` (not negative, each once, any order), + out when
/// `accumulate`. `out` has in's shape with those dims of size 1, or without them. Floats accumulate
/// in f32 (f64 for f64) in fixed lanes and blocks, which merge in pairs (columns in three stages),
/// integers in i64: bits do not depend on the number of threads. A NaN makes max and min NaN.
void reduce(Reduction reduction, const Block& out, const Block& in, const Dims& dims,
            double factor = 1, bool accumulate = false);

/// Index (i32 or i64) along `dim` of the greatest (`greatest`) or least element, plus `offset`; the
/// first of equal ones, or of NaNs. With no elements: -1. `out` is in's shape without `dim`, or
/// with size 1 there.
void arg_reduce(const Block& out, const Block& in, int dim, bool greatest, int64_t offset = 0);

/// The first index along `dim`, plus `offset`, where `in` equals `value` (shaped as `out`; NaN
/// equals NaN); the greatest number of out's dtype where none does, so that the least over ranks is
/// the index.
void index_of(const Block& out, const Block& in, const Block& value, int dim, int64_t offset = 0);

}  // namespace weft
