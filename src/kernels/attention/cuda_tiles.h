// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/device/kernel/launch.h"
#include "src/kernels/attention/cuda_call.h"
#include "src/kernels/math/math.h"

namespace weft::cuda {

// Shared parts of the attention kernels. A tile is a square of scores: kTile queries by kTile keys.
// It is distributed over kOwners owners, arranged in a square of side kSide: owner (y, x) holds the
// scores of rows y + i * kSide and columns x + j * kSide, with i and j below kM. Of results it
// holds the same rows, and columns 4 x .. 4 x + 3 of every 4 * kSide. On a GPU a thread is one
// owner; on the emulated device, which has few threads and smaller tiles, each thread is two.

inline namespace WEFT_COMPILER {

#ifdef __CUDACC__
/// Sums stay in registers only if all loops over them are unrolled.
#define WEFT_UNROLL _Pragma("unroll")
inline constexpr int kAttentionThreads = 256, kSide = 16;
inline constexpr int kWidths[] = {64, 128, 256};
#else
#define WEFT_UNROLL
inline constexpr int kAttentionThreads = kEmulatedBlockThreads, kSide = 4;
inline constexpr int kWidths[] = {16, 64, 256};
#endif
inline constexpr int kOwners = kSide * kSide;
inline constexpr int kOwned = kOwners / kAttentionThreads;

/// Products of tiles in C, with operands of up to kWidth columns. Shared memory holds three or four
/// operands and the scores.
template <class C, int kWidth> struct AttentionTiles {
  static constexpr int kM = (sizeof(C) == 4 ? 4 : 2) / (kWidth > 128 ? 2 : 1);
  static constexpr int kTile = kM * kSide;
  /// Row pitches of operands and of scores in elements, not a multiple of the number of banks.
  static constexpr int kRow = kWidth + 4, kScoreRow = kTile + 4;
  static constexpr int kOperand = kTile * kRow, kScores = kTile * kScoreRow;
  /// Columns of a result that an owner holds, in groups of four.
  static constexpr int kFours = kWidth / (4 * kSide);

  /// An owner's part of [kTile, kTile] scores and of a [kTile, kWidth] result.
  struct Scores {
    C at[kM][kM];
  };
  struct Result {
    C at[kM][4 * kFours];
  };

  WEFT_DEVICE static const Four<C>& four(const C* at) {
    return *reinterpret_cast<const Four<C>*>(at);
  }

  /// Loads the rows of a strip, times `factor`, followed by rows of zeros.
  template <class ThreadBlock>
  WEFT_DEVICE static void load(const ThreadBlock& block, C* to, const AttentionSide& side,
                               const Strip& strip, int width, C factor = C(1)) {
    constexpr int kRowFours = kWidth / 4;
    const int64_t start = side.at(strip.batch, strip.head, strip.first);
    for (int i = block.thread(); i < kTile * kRowFours; i += block.threads()) {
      const int row = i / kRowFours, column = i % kRowFours * 4;
      Four<C> values = {};
      const int64_t at = start + row * side.row + column;
      if (row < strip.count && side.by_four && column < width) {
        values = load_four<C>(side.data, side.dtype, at);
      } else if (row < strip.count) {
        for (int j = 0; j < 4 && column + j < width; ++j) {
          values.element[j] = load_element<C>(side.data, side.dtype, at + j);
        }
      }
      for (int j = 0; j < 4; ++j) values.element[j] = values.element[j] * factor;
      *reinterpret_cast<Four<C>*>(to + row * kRow + column) = values;
    }
  }

  /// Computes an owner's part of a b^T for two operands.
  WEFT_DEVICE static Scores multiply_rows(int owner, const C* a, const C* b) {
    a += owner / kSide * kRow, b += owner % kSide * kRow;
    Scores sums = {};
    for (int k = 0; k < kWidth; k += 4) {
      Four<C> left[kM];
      WEFT_UNROLL
      for (int i = 0; i < kM; ++i) left[i] = four(a + i * kSide * kRow + k);
      WEFT_UNROLL
      for (int j = 0; j < kM; ++j) {
        const Four<C> right = four(b + j * kSide * kRow + k);
        WEFT_UNROLL
        for (int i = 0; i < kM; ++i) {
          WEFT_UNROLL
          for (int l = 0; l < 4; ++l) sums.at[i][j] += left[i].element[l] * right.element[l];
        }
      }
    }
    return sums;
  }

  /// sums += p b for scores p and an operand b.
  WEFT_DEVICE static void add_product(int owner, const C* p, const C* b, Result& sums) {
    p += owner / kSide * kScoreRow, b += owner % kSide * 4;
    for (int k = 0; k < kTile; k += 4) {
      Four<C> left[kM];
      WEFT_UNROLL
      for (int i = 0; i < kM; ++i) left[i] = four(p + i * kSide * kScoreRow + k);
      WEFT_UNROLL
      for (int l = 0; l < 4; ++l) {
        WEFT_UNROLL
        for (int f = 0; f < kFours; ++f) {
          const Four<C> right = four(b + (k + l) * kRow + f * 4 * kSide);
          WEFT_UNROLL
          for (int i = 0; i < kM; ++i) {
            WEFT_UNROLL
            for (int c = 0; c < 4; ++c) {
              sums.at[i][4 * f + c] += left[i].element[l] * right.element[c];
            }
          }
        }
      }
    }
  }

  WEFT_DEVICE static void put(int owner, C* scores, const Scores& values) {
    C* to = scores + owner / kSide * kScoreRow + owner % kSide;
    WEFT_UNROLL
    for (int i = 0; i < kM; ++i) {
      WEFT_UNROLL
      for (int j = 0; j < kM; ++j) to[i * kSide * kScoreRow + j * kSide] = values.at[i][j];
    }
  }

  /// Stores an owner's part of a result to the rows of a strip, times `factor`, or each row times
  /// its own factor.
  WEFT_DEVICE static void store(int owner, const AttentionSide& side, const Strip& strip, int width,
                                const Result& values, C factor, const C* factors = nullptr) {
    WEFT_UNROLL
    for (int i = 0; i < kM; ++i) {
      const int row = owner / kSide + i * kSide;
      if (row >= strip.count) continue;
      const C times = factors ? factors[row] : factor;
      const int64_t at = side.at(strip.batch, strip.head, strip.first + row);
      WEFT_UNROLL
      for (int f = 0; f < kFours; ++f) {
        const int column = f * 4 * kSide + owner % kSide * 4;
        WEFT_UNROLL
        for (int c = 0; c < 4; ++c) {
          if (column + c >= width) continue;
          store_result(side.data, side.dtype, at + column + c, values.at[i][4 * f + c] * times);
        }
      }
    }
  }
};

/// Calls f with the tiles for that width.
template <class C, class F> void with_attention_tiles(int64_t width, const F& f) {
  if (width <= kWidths[0]) return f(AttentionTiles<C, kWidths[0]>());
  if (width <= kWidths[1]) return f(AttentionTiles<C, kWidths[1]>());
  if (width <= kWidths[2]) return f(AttentionTiles<C, kWidths[2]>());
  fail("attention: head_dim is ", width, ", expected at most ", kWidths[2], " on a GPU");
}

}  // namespace WEFT_COMPILER
}  // namespace weft::cuda
