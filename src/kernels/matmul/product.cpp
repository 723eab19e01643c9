// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/matmul/product.h"

#include <algorithm>
#include <cstring>

#include "src/base/parallel.h"
#include "src/kernels/matmul/element.h"
#include "src/kernels/matmul/tasks.h"

namespace weft {

/// Operands in the form that the kernel needs: of one type, rows of b and c dense.
template <class T> struct PlainOperands {
  int64_t m, n, k;
  const T* a;
  int64_t a_row, a_column;
  const T* b;
  int64_t b_row;
  T* c;
  int64_t c_row;
  const T* bias;
  T beta;
};

/// Computes c[i .. i + kRows, j .. j + kVectors * width], with sums in registers over all of k.
template <class T, int kBytes, int kRows, int kVectors>
static void plain_tile(const PlainOperands<T>& p, int64_t i, int64_t j) {
  typedef T Lanes __attribute__((vector_size(kBytes)));
  constexpr int kWidth = kBytes / static_cast<int>(sizeof(T));
  Lanes sums[kRows][kVectors] = {};
  const T* a = p.a + i * p.a_row;
  const T* b = p.b + j;
  for (int64_t l = 0; l < p.k; ++l, b += p.b_row, a += p.a_column) {
    Lanes row[kVectors];
    std::memcpy(row, b, sizeof row);
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) sums[r][v] += a[r * p.a_row] * row[v];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    T* c = p.c + (i + r) * p.c_row + j;
    for (int v = 0; v < kVectors; ++v, c += kWidth) {
      Lanes other;
      if (p.bias) {
        std::memcpy(&other, p.bias + j + v * kWidth, sizeof other);
        sums[r][v] += other;
      }
      if (p.beta != 0) {
        std::memcpy(&other, c, sizeof other);
        sums[r][v] += p.beta * other;
      }
      std::memcpy(c, &sums[r][v], sizeof other);
    }
  }
}

/// Computes all rows of some columns: four rows at a time, so that 8 sums hide the latency of one.
/// With many rows it first copies the columns of b densely, because rows a power of two apart share
/// few cache sets.
template <class T, int kBytes, int kVectors>
static void plain_columns(const PlainOperands<T>& given, int64_t j) {
  constexpr int64_t kWidth = kVectors * kBytes / static_cast<int>(sizeof(T));
  PlainOperands<T> p = given;
  ScratchMemory scratch;
  if (p.m >= 32) {
    T* columns = scratch.take<T>(p.k * kWidth);
    for (int64_t l = 0; l < p.k; ++l)
      std::copy_n(p.b + l * p.b_row + j, kWidth, columns + l * kWidth);
    p.b = columns - j;
    p.b_row = kWidth;
  }
  int64_t i = 0;
  for (; i + 4 <= p.m; i += 4) plain_tile<T, kBytes, 4, kVectors>(p, i, j);
  for (; i < p.m; ++i) plain_tile<T, kBytes, 1, kVectors>(p, i, j);
}

/// Processes panels of columns, widest first; the cache serves a panel again for each four rows.
template <class T> static void plain_panels(const PlainOperands<T>& p) {
  constexpr int64_t kWide = 64 / sizeof(T);
  int64_t j = 0;
  for (; j + 2 * kWide <= p.n; j += 2 * kWide) plain_columns<T, 64, 2>(p, j);
  for (; j + kWide <= p.n; j += kWide) plain_columns<T, 64, 1>(p, j);
  for (; j + kWide / 2 <= p.n; j += kWide / 2) plain_columns<T, 32, 1>(p, j);
  for (; j + kWide / 4 <= p.n; j += kWide / 4) plain_columns<T, 16, 1>(p, j);
  for (; j < p.n; ++j) plain_columns<T, sizeof(T), 1>(p, j);
}

/// Distributes the rows over several threads.
template <class T> static void plain_threads(const PlainOperands<T>& p) {
  constexpr int64_t kWorthAThread = int64_t{1} << 18;
  const int threads = p.m * p.n * p.k < 2 * kWorthAThread ? 1 : usable_threads();
  if (threads == 1) return plain_panels(p);
  const int64_t rows = ((p.m + threads - 1) / threads + 3) / 4 * 4;
  run_tasks((p.m + rows - 1) / rows, threads, [&](int64_t i, int) {
    PlainOperands<T> part = p;
    part.m = std::min(rows, p.m - i * rows);
    part.a += i * rows * p.a_row;
    part.c += i * rows * p.c_row;
    plain_panels(part);
  });
}

/// Returns `matrix` itself if its elements are of T and, if required, its rows dense; else a copy
/// that is.
template <class T>
static Matrix plain_operand(const Matrix& matrix, int64_t rows, int64_t columns, DType dtype,
                            bool dense_rows, ScratchMemory& scratch) {
  if (matrix.dtype == dtype && (!dense_rows || matrix.column == 1)) return matrix;
  const Matrix copy{scratch.take<T>(rows * columns), dtype, columns, 1};
  copy_matrix(matrix, rows, columns, copy);
  return copy;
}

template <class T> static void plain_product(const Product& p, DType dtype) {
  ScratchMemory scratch;
  const Matrix a = plain_operand<T>(p.a, p.m, p.k, dtype, false, scratch);
  const Matrix b = plain_operand<T>(p.b, p.k, p.n, dtype, true, scratch);
  const T* bias = static_cast<const T*>(p.bias);
  if (bias && p.bias_dtype != dtype) {
    const Matrix given{const_cast<void*>(p.bias), p.bias_dtype, p.n, 1};
    bias = static_cast<const T*>(plain_operand<T>(given, 1, p.n, dtype, true, scratch).data);
  }
  const bool in_place = p.c.dtype == dtype && p.c.column == 1;
  const Matrix c = in_place ? p.c : Matrix{scratch.take<T>(p.m * p.n), dtype, p.n, 1};
  const PlainOperands<T> operands{p.m,
                                  p.n,
                                  p.k,
                                  static_cast<const T*>(a.data),
                                  a.row,
                                  a.column,
                                  static_cast<const T*>(b.data),
                                  b.row,
                                  static_cast<T*>(c.data),
                                  c.row,
                                  bias,
                                  in_place ? factor_as<T>(p.beta) : T{0}};
  plain_threads(operands);
  if (!in_place) store_matrix(c, p.m, p.n, p.c, p.beta);
}

/// Computes the product in plain loops, for every dtype but bool; used for all products in builds
/// without oneDNN.
static void multiply_plain(const Product& p) {
  visit_element(p.a.dtype, [&]<class T>(Type<T>) {
    plain_product<Computed<T>>(p,
                               std::is_same_v<T, Computed<T>> ? p.a.dtype : dtype_of<Computed<T>>);
  });
}

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

static bool is_narrow(const Product& p) {
  return has_few_rows(p) || (!p.bias && has_few_rows(p.transposed()));
}

void multiply_narrow(const Product& given) {
  const Product p = has_few_rows(given) ? given : given.transposed();
  ScratchMemory scratch;
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

/// Below this many multiplications a call of oneDNN (0.4 µs) takes longer than the plain loops.
static constexpr int64_t kTinyProduct = 16384;

void multiply(const Product& product) {
  if (product.m == 0 || product.n == 0) return;
  const bool tiny = product.m * product.n * product.k <= kTinyProduct;
  const bool in_f32 = product.a.dtype <= DType::f16 && product.c.dtype <= DType::f16;
  if (in_f32 && !tiny && is_narrow(product)) return multiply_narrow(product);
#ifdef WEFT_WITH_ONEDNN
  if (in_f32 && !tiny) return multiply_onednn(product);
#endif
  multiply_plain(product);
}

}  // namespace weft
