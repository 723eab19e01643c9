// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <utility>

#include "src/kernels/matmul/product.h"
#include "src/kernels/matmul/tasks.h"

namespace weft {

static bool& products_are_fixed() {
  static thread_local bool are_fixed = false;
  return are_fixed;
}

FixedProducts::FixedProducts(bool on) : before_(std::exchange(products_are_fixed(), on)) {}
FixedProducts::~FixedProducts() { products_are_fixed() = before_; }
bool FixedProducts::are_on() { return products_are_fixed(); }
bool FixedProducts::have_equal_parts() {
#ifdef WEFT_WITH_ONEDNN
  return has_avx512_kernels();
#else
  return true;
#endif
}

#ifdef WEFT_WITH_ONEDNN
/// to += from, of f32.
static void add_dense(const Matrix& from, int64_t rows, int64_t columns, const Matrix& to) {
  if (to.column != 1) return store_matrix(from, rows, columns, to, 1);
  for (int64_t i = 0; i < rows; ++i) {
    const float* source = from.as<float>() + i * from.row;
    float* target = to.as<float>() + i * to.row;
    for (int64_t j = 0; j < columns; ++j) target[j] += source[j];
  }
}

/// A copy with dense rows (or, of a transposed matrix, columns), and zeros behind it.
static Matrix padded(const Matrix& x, int64_t rows, int64_t columns, int64_t all_rows,
                     int64_t all_columns, ScratchMemory& scratch) {
  const size_t bytes = static_cast<size_t>(all_rows * all_columns) * size_of(x.dtype);
  void* memory = scratch.take_bytes(bytes);
  std::memset(memory, 0, bytes);
  const bool is_transposed = dense_rows(x, rows, columns).transposed;
  const Matrix made = is_transposed ? Matrix{memory, x.dtype, 1, all_rows}
                                    : Matrix{memory, x.dtype, all_columns, 1};
  copy_matrix(x, rows, columns, made);
  return made;
}

/// The product of at least 16 rows and columns: of fewer, oneDNN adds in another order.
static void multiply_padded(const Product& given) {
  constexpr int64_t kLeast = 16;
  if (given.m >= kLeast && given.n >= kLeast) return multiply_onednn(given);
  ScratchMemory scratch;
  Product p = given;
  p.m = std::max(kLeast, given.m), p.n = std::max(kLeast, given.n);
  if (p.m > given.m) p.a = padded(given.a, given.m, p.k, p.m, p.k, scratch);
  if (p.n > given.n) p.b = padded(given.b, p.k, given.n, p.k, p.n, scratch);
  if (p.n > given.n && given.bias) {
    const Matrix bias{const_cast<void*>(given.bias), given.bias_dtype, given.n, 1};
    p.bias = padded(bias, 1, given.n, 1, p.n, scratch).data;
  }
  p.c = {scratch.take<float>(p.m * p.n), DType::f32, p.n, 1};
  multiply_onednn(p);
  copy_matrix(p.c, given.m, given.n, given.c);
}

/// Adds up the products of equal shares of k of at most 256 elements. In these the bits of an
/// element of the result depend neither on the numbers of rows and columns nor on strides
/// (measured). Of more elements oneDNN's kernels, which it chooses by shape, begin a new sum at
/// other places, and what they add to a result they add early or late.
static void multiply_in_blocks(const Product& given) {
  constexpr int64_t kMostK = 256;
  if (given.c.column != 1 && given.c.row == 1 && !given.bias) {
    return multiply_in_blocks(given.transposed());
  }
  if (given.k <= kMostK && given.beta == 0) return multiply_padded(given);
  const int64_t shares = (given.k + kMostK - 1) / kMostK;
  const int64_t share = (given.k + shares - 1) / shares;
  ScratchMemory scratch;
  Product p = given;
  p.beta = 0;
  Matrix sum = p.c;
  if (p.c.dtype != DType::f32 || given.beta != 0) {
    sum = {scratch.take<float>(p.m * p.n), DType::f32, p.n, 1};
  }
  const Matrix part{shares > 1 ? scratch.take<float>(p.m * p.n) : nullptr, DType::f32, p.n, 1};
  for (int64_t first = 0; first < given.k; first += share) {
    p.k = std::min(share, given.k - first);
    p.a = given.a.transposed().rows_from(first).transposed();
    p.b = given.b.rows_from(first);
    p.c = first == 0 ? sum : part;
    multiply_padded(p);
    if (first > 0) add_dense(part, p.m, p.n, sum);
    p.bias = nullptr;
  }
  if (sum.data != given.c.data) store_matrix(sum, p.m, p.n, given.c, given.beta);
}

void multiply_in_tiles(const Product& given) {
  constexpr int64_t kWorthTiles = int64_t{1} << 20, kMostTiles = 8, kLeast = 128, kMultiple = 64;
  const bool by_rows = given.m >= given.n;
  const int64_t size = by_rows ? given.m : given.n;
  const bool has_equal_parts = FixedProducts::have_equal_parts();
  // Where parts have other bits, the tiles depend on the shape alone.
  const bool cuts =
      (!has_equal_parts || usable_threads() > 1) && given.m * given.n * given.k >= kWorthTiles;
  const int64_t share = (size + kMostTiles - 1) / kMostTiles;
  const int64_t each =
      cuts ? std::max(kLeast, (share + kMultiple - 1) / kMultiple * kMultiple) : size;
  run_tasks((size + each - 1) / each, usable_threads(), [&](int64_t i, int) {
    const int64_t first = i * each;
    const Product tile = given.part(by_rows, first, std::min(each, size - first));
    has_equal_parts ? multiply_in_blocks(tile) : multiply_onednn(tile);
  });
}
#endif

}  // namespace weft
