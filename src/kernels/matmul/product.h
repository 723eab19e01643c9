// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "src/base/numeric.h"
#include "src/kernels/kernel.h"

namespace weft {

/// The type that products of T are computed in: float for halves; 32 bits for integers of 16, which
/// keep the lower bits.
template <class T>
using Computed = std::conditional_t<is_half<T>, float,
                                    std::conditional_t<std::is_same_v<T, uint16_t>, uint32_t, T>>;

template <class To, class From> To element_as(From x) {
  return static_cast<To>(static_cast<Computed<To>>(static_cast<Computed<From>>(x)));
}

/// Converts a scale factor to T.
template <class T> T factor_as(double x) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<int64_t>(x));
  return static_cast<T>(x);
}

/// Calls visitor(Type<T>{}) with T the type that represents `dtype` in products: unsigned, so that
/// integers wrap.
template <class Visitor> decltype(auto) visit_element(DType dtype, const Visitor& visitor) {
  if (dtype == DType::boolean) fail("gemm: dtype is ", dtype, ", expected a number");
  return visit_bits(dtype, visitor);
}

/// Element (i, j) is `i * row + j * column` elements after `data`.
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t row = 0;
  int64_t column = 1;

  template <class T> T* as() const { return static_cast<T*>(data); }
  Matrix transposed() const { return {data, dtype, column, row}; }
  /// The matrix without the rows before `first`.
  Matrix rows_from(int64_t first) const {
    return {element_at(data, first * row, dtype), dtype, row, column};
  }
};

/// Memory layout of a matrix: rows (or, transposed, columns) of dense elements, `leading` apart.
struct DenseRows {
  bool possible;
  bool transposed;
  int64_t leading;
};
DenseRows dense_rows(const Matrix& x, int64_t rows, int64_t columns);

/// to = factor * from, for `rows` x `columns` elements of any strides and floating dtypes, or of
/// one integer dtype with factor 1. Transposes in blocks.
void copy_matrix(const Matrix& from, int64_t rows, int64_t columns, const Matrix& to,
                 double factor = 1);

/// to = from + beta * to.
void store_matrix(const Matrix& from, int64_t rows, int64_t columns, const Matrix& to, float beta);

/// One product of matrices: c[m, n] = a[m, k] @ b[k, n] + bias[n] + beta * c. a and b have one
/// dtype; any strides.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  Matrix a, b, c;
  float beta = 0;
  /// Null when there is no bias.
  const void* bias = nullptr;
  DType bias_dtype = DType::f32;

  /// The product of which c is the transpose; without the bias.
  Product transposed() const {
    return {n, m, k, b.transposed(), a.transposed(), c.transposed(), beta};
  }

  /// The product of `count` rows of the result from `first` on, or of as many columns.
  Product part(bool of_rows, int64_t first, int64_t count) const {
    Product made = *this;
    if (of_rows) {
      made.m = count, made.a = a.rows_from(first), made.c = c.rows_from(first);
      return made;
    }
    made.n = count;
    made.b = b.transposed().rows_from(first).transposed();
    made.c = c.transposed().rows_from(first).transposed();
    if (bias) made.bias = element_at(const_cast<void*>(bias), first, bias_dtype);
    return made;
  }
};

/// Computes the product: with oneDNN, or in plain loops when it is tiny, not floating, or the build
/// has no oneDNN.
void multiply(const Product& product);

/// Computes a product of f32, bf16 or f16 of a few rows by a matrix with dense columns, or the
/// transpose of that: the products of decoding one token. Takes dot products in f32 that read the
/// matrix once, without repacking.
void multiply_narrow(const Product& product);

class ScratchMemory;

/// Returns a copy with dense rows.
Matrix copied(const Matrix& matrix, int64_t rows, int64_t columns, DType dtype,
              ScratchMemory& scratch);

/// Returns the elements of the product's bias as `dtype`; null when it has none.
const void* bias_in(DType dtype, const Product& product, ScratchMemory& scratch);

/// The number of rows to prefetch ahead: when each row begins on another page, the processor does
/// not prefetch by itself.
inline constexpr int64_t kFetchedAhead = 16;
template <class T> void fetch_ahead(const T* row, int64_t elements) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < elements; i += kLine) __builtin_prefetch(row + i);
}

/// Computes the product by oneDNN, for f32, bf16 and f16 operands; m, n, k > 0. bf16 products run
/// in f32 if the processor has no bf16 instructions, f16 products always. The primitives are cached
/// per thread.
void multiply_onednn(const Product& product);

/// The same for FixedProducts: cuts the longer side of the result into at most 8 tiles, of at least
/// 128 rows or columns.
void multiply_in_tiles(const Product& product);

/// Computes a product of f64, c64 or c128 by BLAS; m, n, k are from 1 to INT32_MAX. Returns false,
/// with nothing done, where OpenBLAS is missing.
bool multiply_by_blas(const Product& product);

/// Returns whether oneDNN computes by AVX-512.
bool has_avx512_kernels();

/// Returns whether the processor has instructions for products of bf16.
bool has_bf16_instructions();

/// Throws when oneDNN's CPU runtime (see dnnl_version_t) is SYCL: such a build computes after its
/// calls have returned.
void check_onednn_runtime(unsigned cpu_runtime);

/// Returns oneDNN's version and the instruction set it uses here: its results depend on both.
std::string onednn_in_words();

/// A dim over which products repeat, and each operand's stride along it.
struct BatchDim {
  int64_t size, a, b, c;
};

/// One product for each element of the batch dims, innermost first.
struct BatchedProduct {
  Product each;
  int ndim = 0;
  BatchDim dims[kMaxDims];

  int64_t count() const {
    int64_t count = 1;
    for (int i = 0; i < ndim; ++i) count *= dims[i].size;
    return count;
  }
};

/// Returns product number `index` of the batch over the dims from `first` on.
Product product_at(const BatchedProduct& batch, int64_t index, int first = 0);

/// Computes the products. On a GPU they are queued on the current stream of `device`, which holds
/// their memory: by cuBLASLt, or by a plain kernel when it has no algorithm for them (integers,
/// unsupported strides).
WEFT_KERNEL(void, multiply_batch, (const BatchedProduct& batch, Device device), (batch, device))

/// Computes products of any sizes, such as those of the rows of each expert. Their results do not
/// overlap. On a GPU they are one call of cuBLAS where it supports them, queued on the current
/// stream of `device`, which holds their memory.
WEFT_KERNEL(void, multiply_each, (std::span<const Product> products, Device device),
            (products, device))

namespace cuda {

/// Returns whether the products are for cuBLASLt, and creates its descriptors, for checks without a
/// device. std::runtime_error when it rejects one.
bool is_described_by_cublaslt(const BatchedProduct& batch);

/// Computes them by cuBLASLt; returns false, with nothing queued, when it does not support them.
bool multiply_by_cublaslt(const BatchedProduct& batch, Device device);

/// Computes products of one dtype by one grouped call of cuBLAS; returns false, with nothing
/// queued, when it does not support them.
bool multiply_each_by_cublas(std::span<const Product> products, Device device);

}  // namespace cuda

}  // namespace weft
