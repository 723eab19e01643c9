// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/matmul/narrow.h"

#include <algorithm>
#include <cstring>

#include "src/base/parallel.h"
#include "src/kernels/matmul/element.h"
#include "src/kernels/matmul/scratch.h"

namespace weft {

static constexpr int64_t kNarrowRows = 8;
static constexpr int kDotLanes = 16;
static constexpr int64_t kDotStep = 2 * kDotLanes;
static constexpr int kDotColumns = 4;

using DotLanes = float __attribute__((vector_size(kDotLanes * sizeof(float))));
using DotBits = uint32_t __attribute__((vector_size(kDotLanes * sizeof(uint32_t))));

/// kDotStep elements as two vectors. bf16 elements are split into even and odd ones by a shift and
/// a mask; keeping their order would take six instructions.
struct DotPair {
  DotLanes first, second;
};

template <class T> static DotPair dot_pair(const T* from) {
  DotPair pair;
  if constexpr (std::is_same_v<T, float>) {
    std::memcpy(&pair.first, from, sizeof pair.first);
    std::memcpy(&pair.second, from + kDotLanes, sizeof pair.second);
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    DotBits bits;
    std::memcpy(&bits, from, sizeof bits);
    pair.first = std::bit_cast<DotLanes>(bits << 16);
    pair.second = std::bit_cast<DotLanes>(bits & 0xffff0000u);
  } else {
    alignas(64) float floats[kDotStep];
    for (int i = 0; i < kDotStep; ++i) floats[i] = static_cast<float>(from[i]);
    return dot_pair(floats);
  }
  return pair;
}

/// Reorders the elements of a dense row like dot_pair<T> does those of a column.
template <class T> static void order_as_pairs(float* row, int64_t k) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    float step[kDotStep];
    for (int64_t l = 0; l + kDotStep <= k; l += kDotStep) {
      std::copy_n(row + l, kDotStep, step);
      for (int i = 0; i < kDotLanes; ++i) {
        row[l + i] = step[2 * i];
        row[l + kDotLanes + i] = step[2 * i + 1];
      }
    }
  }
}

static float sum_of_lanes(const DotLanes& lanes) {
  float sums[kDotLanes];
  std::memcpy(sums, &lanes, sizeof sums);
  for (int half = kDotLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

/// c[i][j] = dot product of row i of a and column j of b, for kRows x kColumns at a time.
template <int kRows, int kColumns, class T>
static void dot_columns(const float* a, const T* b, int64_t b_column, int64_t k, float* c,
                        int64_t c_row) {
  DotLanes sums[kRows][kColumns] = {};
  const int64_t whole = k / kDotStep * kDotStep;
  for (int64_t l = 0; l < whole; l += kDotStep) {
    DotPair column[kColumns];
    for (int j = 0; j < kColumns; ++j) column[j] = dot_pair(b + j * b_column + l);
    for (int i = 0; i < kRows; ++i) {
      const DotPair row = dot_pair(a + i * k + l);
      for (int j = 0; j < kColumns; ++j) {
        sums[i][j] += row.first * column[j].first;
        sums[i][j] += row.second * column[j].second;
      }
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) {
      float sum = sum_of_lanes(sums[i][j]);
      for (int64_t l = whole; l < k; ++l) {
        sum += a[i * k + l] * static_cast<float>(b[j * b_column + l]);
      }
      c[i * c_row + j] = sum;
    }
  }
}

template <int kRows, class T>
static void dot_range(const float* a, const Product& p, float* c, int64_t begin, int64_t end) {
  const T* b = static_cast<const T*>(p.b.data);
  const bool apart = p.b.column != p.k;
  int64_t j = begin;
  for (; j + kDotColumns <= end; j += kDotColumns) {
    for (int64_t i = 0; apart && i < kDotColumns; ++i) {
      fetch_ahead(b + (j + i + kFetchedAhead) * p.b.column, p.k);
    }
    dot_columns<kRows, kDotColumns>(a, b + j * p.b.column, p.b.column, p.k, c + j, p.n);
  }
  for (; j < end; ++j) dot_columns<kRows, 1>(a, b + j * p.b.column, p.b.column, p.k, c + j, p.n);
}

/// Computes all rows, four at a time.
template <class T>
static void dot_rows(const float* a, const Product& p, float* c, int64_t begin, int64_t end) {
  for (int64_t i = 0; i < p.m; i += 4, a += 4 * p.k, c += 4 * p.n) {
    switch (p.m - i) {
      case 1: dot_range<1, T>(a, p, c, begin, end); break;
      case 2: dot_range<2, T>(a, p, c, begin, end); break;
      case 3: dot_range<3, T>(a, p, c, begin, end); break;
      default: dot_range<4, T>(a, p, c, begin, end);
    }
  }
}

static bool has_few_rows(const Product& p) {
  return p.m <= kNarrowRows && p.b.row == 1 && p.b.column >= p.k;
}

bool is_narrow(const Product& p) {
  return has_few_rows(p) || (!p.bias && has_few_rows(p.transposed()));
}

void multiply_narrow(const Product& given) {
  const Product p = has_few_rows(given) ? given : given.transposed();
  Scratch scratch;
  float* a = scratch.take<float>(p.m * p.k);
  copy_matrix(p.a, p.m, p.k, {a, DType::f32, p.k, 1});
  float* c = scratch.take<float>(p.m * p.n);
  // Four columns per step: threads' ranges start at multiples, so sums do not depend on them.
  const int64_t steps = (p.n + kDotColumns - 1) / kDotColumns;
  visit_floating("gemm", p.b.dtype, [&]<class T>(Type<T>) {
    if constexpr (!std::is_same_v<T, double>) {
      for (int64_t i = 0; i < p.m; ++i) order_as_pairs<T>(a + i * p.k, p.k);
      parallel_for(steps, grain_of(kDotColumns * p.k), [&](int64_t begin, int64_t end) {
        dot_rows<T>(a, p, c, begin * kDotColumns, std::min(end * kDotColumns, p.n));
      });
    }
  });
  if (p.bias) {
    float* bias = scratch.take<float>(p.n);
    copy_matrix({const_cast<void*>(p.bias), p.bias_dtype, p.n, 1}, 1, p.n,
                {bias, DType::f32, p.n, 1});
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) c[i * p.n + j] += bias[j];
    }
  }
  store_matrix({c, DType::f32, p.n, 1}, p.m, p.n, p.c, p.beta);
}

}  // namespace weft
