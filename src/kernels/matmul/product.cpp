// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/matmul/product.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/parallel.h"
#include "src/kernels/matmul/tasks.h"

namespace weft {

// The plain kernels take products of elements of T with dense rows of b and c. They compute all
// products in builds without oneDNN and OpenBLAS.

/// Computes c[i .. i + kRows, j .. j + kVectors * width], with sums in registers over all of k.
template <class T, int kBytes, int kRows, int kVectors>
static void plain_tile(const Product& p, int64_t i, int64_t j) {
  typedef T Lanes __attribute__((vector_size(kBytes)));
  constexpr int kWidth = kBytes / static_cast<int>(sizeof(T));
  Lanes sums[kRows][kVectors] = {};
  const T *a = p.a.as<T>() + i * p.a.row, *b = p.b.as<T>() + j;
  const T *bias = static_cast<const T*>(p.bias), beta = factor_as<T>(p.beta);
  for (int64_t l = 0; l < p.k; ++l, b += p.b.row, a += p.a.column) {
    Lanes row[kVectors];
    std::memcpy(row, b, sizeof row);
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) sums[r][v] += a[r * p.a.row] * row[v];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    T* c = p.c.as<T>() + (i + r) * p.c.row + j;
    for (int v = 0; v < kVectors; ++v, c += kWidth) {
      Lanes other;
      if (bias) {
        std::memcpy(&other, bias + j + v * kWidth, sizeof other);
        sums[r][v] += other;
      }
      if (beta != 0) {
        std::memcpy(&other, c, sizeof other);
        sums[r][v] += beta * other;
      }
      std::memcpy(c, &sums[r][v], sizeof other);
    }
  }
}

/// Computes all rows of some columns: four rows at a time, so that 8 sums hide the latency of one.
/// With many rows it first copies the columns of b densely, because rows a power of two apart share
/// few cache sets.
template <class T, int kBytes, int kVectors>
static void plain_columns(const Product& given, int64_t j) {
  constexpr int64_t kWidth = kVectors * kBytes / static_cast<int>(sizeof(T));
  Product p = given;
  ScratchMemory scratch;
  if (p.m >= 32) {
    T* columns = scratch.take<T>(p.k * kWidth);
    for (int64_t l = 0; l < p.k; ++l)
      std::copy_n(p.b.as<T>() + l * p.b.row + j, kWidth, columns + l * kWidth);
    p.b.data = columns - j;
    p.b.row = kWidth;
  }
  int64_t i = 0;
  for (; i + 4 <= p.m; i += 4) plain_tile<T, kBytes, 4, kVectors>(p, i, j);
  for (; i < p.m; ++i) plain_tile<T, kBytes, 1, kVectors>(p, i, j);
}

/// Processes panels of columns, widest first; the cache serves a panel again for each four rows.
template <class T> static void plain_panels(const Product& p) {
  constexpr int64_t kWide = 64 / sizeof(T);
  int64_t j = 0;
  for (; j + 2 * kWide <= p.n; j += 2 * kWide) plain_columns<T, 64, 2>(p, j);
  for (; j + kWide <= p.n; j += kWide) plain_columns<T, 64, 1>(p, j);
  for (; j + kWide / 2 <= p.n; j += kWide / 2) plain_columns<T, 32, 1>(p, j);
  for (; j + kWide / 4 <= p.n; j += kWide / 4) plain_columns<T, 16, 1>(p, j);
  for (; j < p.n; ++j) plain_columns<T, sizeof(T), 1>(p, j);
}

/// Distributes the rows over several threads.
template <class T> static void plain_threads(const Product& p) {
  constexpr int64_t kWorthAThread = int64_t{1} << 18;
  const int threads = p.m * p.n * p.k < 2 * kWorthAThread ? 1 : usable_threads();
  if (threads == 1) return plain_panels<T>(p);
  const int64_t rows = ((p.m + threads - 1) / threads + 3) / 4 * 4;
  run_tasks((p.m + rows - 1) / rows, threads, [&](int64_t i, int) {
    Product part = p;
    part.m = std::min(rows, p.m - i * rows);
    part.a = p.a.rows_from(i * rows);
    part.c = p.c.rows_from(i * rows);
    plain_panels<T>(part);
  });
}

template <class T> static void plain_product(const Product& given, DType dtype) {
  Product p = given;
  ScratchMemory scratch;
  if (p.a.dtype != dtype) p.a = copied(p.a, p.m, p.k, dtype, scratch);
  if (p.b.dtype != dtype || p.b.column != 1) p.b = copied(p.b, p.k, p.n, dtype, scratch);
  p.bias = bias_in(dtype, p, scratch);
  const bool in_place = p.c.dtype == dtype && p.c.column == 1;
  if (in_place) return plain_threads<T>(p);
  p.c = {scratch.take<T>(p.m * p.n), dtype, p.n, 1};
  p.beta = 0;
  plain_threads<T>(p);
  store_matrix(p.c, p.m, p.n, given.c, given.beta);
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
  const T* b = p.b.as<T>();
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
  if (const auto* bias = static_cast<const float*>(bias_in(DType::f32, p, scratch))) {
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) c[i * p.n + j] += bias[j];
    }
  }
  store_matrix({c, DType::f32, p.n, 1}, p.m, p.n, p.c, p.beta);
}

/// Below this many multiplications a call of oneDNN (0.4 µs) takes longer than the plain loops.
static constexpr int64_t kTinyProduct = 16384;

/// Computes a product of complex matrices in plain loops.
template <class T> static void multiply_complex(const Product& p) {
  using R = decltype(T::re);
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      const T *a = p.a.as<T>() + i * p.a.row, *b = p.b.as<T>() + j * p.b.column;
      T sum(0);
      for (int64_t l = 0; l < p.k; ++l) sum = sum + a[l * p.a.column] * b[l * p.b.row];
      T& c = p.c.as<T>()[i * p.c.row + j * p.c.column];
      c = p.beta == 0 ? sum : sum + c * static_cast<R>(p.beta);
    }
  }
}

void multiply(const Product& product) {
  if (product.m == 0 || product.n == 0) return;
  const bool tiny = product.m * product.n * product.k <= kTinyProduct;
  const bool in_f32 = product.a.dtype <= DType::f16 && product.c.dtype <= DType::f16;
  // A fixed product is computed in one way, whatever its numbers of rows and columns.
  const bool is_fixed = in_f32 && product.k > 0 && FixedProducts::are_on() &&
                        (FixedProducts::have_equal_parts() || (!tiny && !is_narrow(product)));
  if (in_f32 && !tiny && !is_fixed && is_narrow(product)) return multiply_narrow(product);
#ifdef WEFT_WITH_ONEDNN
  if (is_fixed) return multiply_in_tiles(product);
  if (in_f32 && !tiny) return multiply_onednn(product);
#endif
  const bool in_f64 = product.a.dtype == DType::f64 && product.c.dtype == DType::f64;
  const int64_t greatest = std::max({product.m, product.n, product.k});
  const bool with_complex = is_complex(product.a.dtype);
  if ((in_f64 || with_complex) && !tiny && greatest <= INT32_MAX && multiply_by_blas(product))
    return;
  if (with_complex) {
    return visit_complex(product.a.dtype, [&]<class T>(Type<T>) { multiply_complex<T>(product); });
  }
  visit_element(product.a.dtype, [&]<class T>(Type<T>) {
    using C = Computed<T>;
    plain_product<C>(product, std::is_same_v<T, C> ? product.a.dtype : dtype_of<C>);
  });
}

}  // namespace weft
