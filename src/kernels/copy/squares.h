// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace weft {

/// True where the functions below are compiled.
#ifdef __AVX512F__
inline constexpr bool kHasSquares = true;
#else
inline constexpr bool kHasSquares = false;
#endif

/// Squares of 4-byte elements that are transposed in registers, so that each cache line is read and
/// written once.
inline constexpr int64_t kSquare = 16;

/// to[j * to_step + i] = from[i * from_step + j] for i below kSquare and j below `lines`, a
/// multiple of it.
void transpose_squares(uint32_t* to, int64_t to_step, const uint32_t* from, int64_t from_step,
                       int64_t lines);

}  // namespace weft
