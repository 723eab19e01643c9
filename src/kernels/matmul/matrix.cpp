// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/matmul/product.h"

#include <cstring>
#include <utility>

#include "src/base/parallel.h"
#include "src/kernels/matmul/tasks.h"

namespace weft {

#ifdef __AVX512F__
static constexpr int kBlock = 16;
#else
static constexpr int kBlock = 8;
#endif
using BlockRow = float __attribute__((vector_size(kBlock * sizeof(float))));

/// Rows kStep apart exchange the SIMD lanes whose index has, or lacks, that bit.
template <int kStep, int... kLane>
static void exchange_lanes(BlockRow* rows, std::integer_sequence<int, kLane...>) {
  for (int i = 0; i < kBlock; ++i) {
    if (i & kStep) continue;
    const BlockRow first = rows[i], second = rows[i + kStep];
    rows[i] = __builtin_shufflevector(first, second,
                                      ((kLane & kStep) ? kBlock + kLane - kStep : kLane)...);
    rows[i + kStep] = __builtin_shufflevector(
        first, second, ((kLane & kStep) ? kBlock + kLane : kLane + kStep)...);
  }
}

template <class From> static BlockRow load_row(const From* from, float factor) {
  BlockRow row;
  if constexpr (std::is_same_v<From, float>) {
    std::memcpy(&row, from, sizeof row);
    return row * factor;
  } else {
    alignas(64) float lanes[kBlock];
    for (int j = 0; j < kBlock; ++j) lanes[j] = factor * element_as<float>(from[j]);
    std::memcpy(&row, lanes, sizeof row);
    return row;
  }
}

template <class To> static void store_row(const BlockRow& row, To* to) {
  if constexpr (std::is_same_v<To, float>) {
    std::memcpy(to, &row, sizeof row);
  } else {
    alignas(64) float lanes[kBlock];
    std::memcpy(lanes, &row, sizeof row);
    for (int j = 0; j < kBlock; ++j) to[j] = element_as<To>(lanes[j]);
  }
}

/// to[j][i] = factor * from[i][j] for kBlock x kBlock elements, in registers.
template <class From, class To>
static void transpose_block(const From* from, int64_t from_row, To* to, int64_t to_row,
                            float factor) {
  constexpr auto lanes = std::make_integer_sequence<int, kBlock>();
  BlockRow rows[kBlock];
  for (int i = 0; i < kBlock; ++i) rows[i] = load_row(from + i * from_row, factor);
  exchange_lanes<1>(rows, lanes);
  exchange_lanes<2>(rows, lanes);
  exchange_lanes<4>(rows, lanes);
  if constexpr (kBlock == 16) exchange_lanes<8>(rows, lanes);
  for (int i = 0; i < kBlock; ++i) store_row(rows[i], to + i * to_row);
}

template <class T> inline constexpr bool fits_float = std::is_same_v<T, float> || is_half<T>;

template <class To, class From> static To scaled(From x, Computed<From> factor) {
  return element_as<To>(static_cast<Computed<From>>(factor * element_as<Computed<From>>(x)));
}

/// to[j][i] = factor * from[i][j]; rows of both are dense.
template <class From, class To>
static void transpose_rows(const From* from, int64_t from_row, int64_t rows, int64_t columns,
                           To* to, int64_t to_row, Computed<From> factor) {
  const bool in_blocks = fits_float<From> && fits_float<To>;
  const int64_t whole_rows = in_blocks ? rows / kBlock * kBlock : 0;
  const int64_t whole_columns = in_blocks ? columns / kBlock * kBlock : 0;
  if constexpr (in_blocks) {
    for (int64_t i = 0; i < whole_rows; i += kBlock) {
      for (int64_t j = 0; j < whole_columns; j += kBlock) {
        transpose_block(from + i * from_row + j, from_row, to + j * to_row + i, to_row, factor);
      }
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j) {
      to[j * to_row + i] = scaled<To>(from[i * from_row + j], factor);
    }
  }
}

/// to[i][j] = factor * from[i][j].
template <class From, class To>
static void copy_rows(const Matrix& from, int64_t rows, int64_t columns, const Matrix& to,
                      Computed<From> factor) {
  const bool dense = from.column == 1 && to.column == 1;
  for (int64_t i = 0; i < rows; ++i) {
    const From* source = from.as<From>() + i * from.row;
    To* target = to.as<To>() + i * to.row;
    if (dense && std::is_same_v<From, To> && factor == 1) {
      std::memcpy(static_cast<void*>(target), source, static_cast<size_t>(columns) * sizeof(To));
    } else if (dense) {
      for (int64_t j = 0; j < columns; ++j) target[j] = scaled<To>(source[j], factor);
    } else {
      for (int64_t j = 0; j < columns; ++j)
        target[j * to.column] = scaled<To>(source[j * from.column], factor);
    }
  }
}

template <class From, class To>
static void copy_elements(const Matrix& from, int64_t rows, int64_t columns, const Matrix& to,
                          double factor) {
  if (to.row == 1 && to.column != 1) {
    return copy_elements<From, To>(from.transposed(), columns, rows, to.transposed(), factor);
  }
  const auto scale = factor_as<Computed<From>>(factor);
  if (to.column == 1 && from.row == 1 && from.column != 1) {
    return transpose_rows(from.as<From>(), from.column, columns, rows, to.as<To>(), to.row, scale);
  }
  copy_rows<From, To>(from, rows, columns, to, scale);
}

template <class From, class To>
static constexpr bool kConvertible = std::is_same_v<From, To> ||
                                     std::is_same_v<Computed<From>, Computed<To>> ||
                                     (is_floating_type<From> && is_floating_type<To>);

DenseRows dense_rows(const Matrix& x, int64_t rows, int64_t columns) {
  if (x.column == 1 || columns == 1) {
    const int64_t leading = rows == 1 ? columns : x.row;
    if (leading >= columns) return {true, false, leading};
  }
  if (x.row == 1 || rows == 1) {
    const int64_t leading = columns == 1 ? rows : x.column;
    if (leading >= rows) return {true, true, leading};
  }
  return {false, false, columns};
}

/// Calls f(Type<From>, Type<To>) for two dtypes; the first must be convertible to the second.
template <class F> static void visit_pair(DType from, DType to, const F& f) {
  visit_element(from, [&]<class From>(Type<From>) {
    visit_element(to, [&]<class To>(Type<To>) {
      if constexpr (kConvertible<From, To>) {
        f(Type<From>{}, Type<To>{});
      } else {
        fail("gemm: dtype of the result is ", to, ", expected one for a product of ", from);
      }
    });
  });
}

/// to = from + beta * to, for complex elements of one dtype.
static void store_complex(const Matrix& from, int64_t rows, int64_t columns, const Matrix& to,
                          float beta) {
  visit_complex(from.dtype, [&]<class T>(Type<T>) {
    for (int64_t i = 0; i < rows; ++i) {
      const T* source = from.as<T>() + i * from.row;
      T* target = to.as<T>() + i * to.row;
      for (int64_t j = 0; j < columns; ++j) {
        T& place = target[j * to.column];
        const T value = source[j * from.column];
        place = beta == 0 ? value : value + place * static_cast<decltype(place.re)>(beta);
      }
    }
  });
}

void copy_matrix(const Matrix& from, int64_t rows, int64_t columns, const Matrix& to,
                 double factor) {
  if (is_complex(from.dtype)) return store_complex(from, rows, columns, to, 0);
  visit_pair(from.dtype, to.dtype, [&]<class From, class To>(Type<From>, Type<To>) {
    if (rows * columns <= kParallelGrain) {
      return copy_elements<From, To>(from, rows, columns, to, factor);
    }
    parallel_for(rows, grain_of(columns), [&](int64_t begin, int64_t end) {
      copy_elements<From, To>(from.rows_from(begin), end - begin, columns, to.rows_from(begin),
                              factor);
    });
  });
}

Matrix copied(const Matrix& matrix, int64_t rows, int64_t columns, DType dtype,
              ScratchMemory& scratch) {
  const auto bytes = static_cast<size_t>(rows * columns) * size_of(dtype);
  const Matrix copy{scratch.take_bytes(bytes), dtype, columns, 1};
  copy_matrix(matrix, rows, columns, copy);
  return copy;
}

const void* bias_in(DType dtype, const Product& product, ScratchMemory& scratch) {
  if (!product.bias || product.bias_dtype == dtype) return product.bias;
  const Matrix bias{const_cast<void*>(product.bias), product.bias_dtype, product.n, 1};
  return copied(bias, 1, product.n, dtype, scratch).data;
}

void store_matrix(const Matrix& from, int64_t rows, int64_t columns, const Matrix& to, float beta) {
  if (beta == 0) return copy_matrix(from, rows, columns, to);
  if (is_complex(from.dtype)) return store_complex(from, rows, columns, to, beta);
  visit_pair(from.dtype, to.dtype, [&]<class From, class To>(Type<From>, Type<To>) {
    const auto factor = factor_as<Computed<From>>(beta);
    for (int64_t i = 0; i < rows; ++i) {
      const From* source = from.as<From>() + i * from.row;
      To* target = to.as<To>() + i * to.row;
      for (int64_t j = 0; j < columns; ++j) {
        const auto old = element_as<Computed<From>>(target[j * to.column]);
        const auto sum = element_as<Computed<From>>(source[j * from.column]) + factor * old;
        target[j * to.column] = element_as<To>(static_cast<Computed<From>>(sum));
      }
    }
  });
}

}  // namespace weft
