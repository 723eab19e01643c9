// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/matmul/gemm.h"

#include <algorithm>
#include <optional>

#include "src/base/numeric.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/matmul/product.h"
#include "src/kernels/matmul/tasks.h"
#include "weft/error.h"

namespace weft {

static Matrix last_two(const MemoryBlock& x) {
  const int ndim = x.shape.ndim();
  return {x.data, x.dtype, x.strides[ndim - 2], x.strides[ndim - 1]};
}

static void check_dtypes(const MemoryBlock& a, const MemoryBlock& b, const MemoryBlock& out) {
  const bool both_float8 = is_float8(a.dtype) && is_float8(b.dtype);
  if (a.dtype != b.dtype && !both_float8)
    fail("gemm: operands are ", a.dtype, " and ", b.dtype, ", expected one dtype; cast one");
  const bool may_widen = a.dtype == DType::bf16 || a.dtype == DType::f16 || both_float8;
  const bool widened = may_widen && out.dtype == DType::f32;
  if (out.dtype != a.dtype && !widened)
    fail("gemm: dtype of the result is ", out.dtype, ", expected ", a.dtype);
  if (a.dtype == DType::boolean) fail("gemm: dtype is bool, expected a number");
  if (is_complex(a.dtype) && out.device.kind == DeviceKind::cuda) refuse_complex("gemm", a.dtype);
  if (a.device != out.device || b.device != out.device) {
    fail("gemm: operands are on ", a.device, " and ", b.device, ", expected ", out.device,
         ", where the result is");
  }
}

/// Returns the stride of `x` along dim `dim` of out, aligned from the right; 0 if x has one element
/// there.
static int64_t broadcast_stride(const MemoryBlock& x, const MemoryBlock& out, int dim,
                                const char* name) {
  const int own = dim - (out.shape.ndim() - x.shape.ndim());
  if (own < 0 || x.shape[own] == 1) return 0;
  if (x.shape[own] != out.shape[dim]) {
    fail("gemm: dim ", own, " of ", name, " ", x.shape, " is ", x.shape[own],
         ", expected one that broadcasts to ", out.shape);
  }
  return x.strides[own];
}

/// True when a batch dim continues the rows of a and c with a shared b, so that it can be merged
/// into one larger product: a linear layer's [B, S, K] by [K, N].
static bool joins_rows(const Product& p, const BatchDim& dim) {
  return dim.b == 0 && dim.a == p.m * p.a.row && dim.c == p.m * p.c.row;
}

static BatchedProduct batched_product(const MemoryBlock& a, const MemoryBlock& b,
                                      const MemoryBlock& out, float beta) {
  const int ndim = out.shape.ndim();
  if (a.shape.ndim() < 2 || b.shape.ndim() < 2 || ndim < std::max(a.shape.ndim(), b.shape.ndim())) {
    fail("gemm: shapes are ", a.shape, " by ", b.shape, " into ", out.shape, ", expected matrices");
  }
  BatchedProduct result;
  Product& p = result.each;
  p = {out.shape[ndim - 2],
       out.shape[ndim - 1],
       a.shape.back(),
       last_two(a),
       last_two(b),
       last_two(out),
       beta};
  if (b.shape[b.shape.ndim() - 2] != p.k) {
    fail("gemm: factor k is ", b.shape[b.shape.ndim() - 2], " in b ", b.shape, ", expected ", p.k,
         ", as in a ", a.shape);
  }
  if (a.shape[a.shape.ndim() - 2] != p.m || b.shape.back() != p.n) {
    fail("gemm: out is ", out.shape, ", expected the product of a ", a.shape, " by b ", b.shape);
  }
  for (int i = ndim - 3; i >= 0; --i) {
    const int64_t a_stride = broadcast_stride(a, out, i, "a");
    const BatchDim dim{out.shape[i], a_stride, broadcast_stride(b, out, i, "b"), out.strides[i]};
    if (dim.size == 1) continue;
    if (p.m == 1 && result.ndim == 0) p.a.row = dim.a, p.c.row = dim.c;  // one row: no stride yet
    if (result.ndim == 0 && joins_rows(p, dim)) {
      p.m *= dim.size;
    } else {
      result.dims[result.ndim++] = dim;
    }
  }
  return result;
}

Product product_at(const BatchedProduct& batch, int64_t index, int first) {
  Product p = batch.each;
  int64_t a = 0, b = 0, c = 0;
  for (int i = first; i < batch.ndim; ++i) {
    const int64_t at = index % batch.dims[i].size;
    index /= batch.dims[i].size;
    a += at * batch.dims[i].a, b += at * batch.dims[i].b, c += at * batch.dims[i].c;
  }
  p.a.data = element_at(p.a.data, a, p.a.dtype);
  p.b.data = element_at(p.b.data, b, p.b.dtype);
  p.c.data = element_at(p.c.data, c, p.c.dtype);
  return p;
}

namespace host {

/// Computes product(i) for each i: whole products on each thread, unless so few that threads would
/// be idle.
template <class At>
static void multiply_all(int64_t count, int threads, bool divides, const At& product) {
  const bool are_fixed = FixedProducts::are_on();
  if (are_fixed || (threads > 1 && (divides || count >= 4 * threads))) {
    return run_tasks(count, threads, [&](int64_t i, int) {
      const FixedProducts fixed(are_fixed);
      multiply(product(i));
    });
  }
  for (int64_t i = 0; i < count; ++i) multiply(product(i));
}

void multiply_batch(const BatchedProduct& batch, Device) {
  if (batch.ndim == 0) return multiply(batch.each);
  const int64_t count = batch.count();
  constexpr int64_t kWorthThreads = int64_t{1} << 18;
  const int64_t work = count * batch.each.m * batch.each.n * batch.each.k;
  const int threads = work < kWorthThreads ? 1 : usable_threads();
  multiply_all(count, threads, count % threads == 0,
               [&](int64_t i) { return product_at(batch, i); });
}

void multiply_each(std::span<const Product> products, Device) {
  multiply_all(static_cast<int64_t>(products.size()), usable_threads(), false,
               [&](int64_t i) -> const Product& { return products[static_cast<size_t>(i)]; });
}

}  // namespace host

void gemm(const MemoryBlock& a, const MemoryBlock& b, const MemoryBlock& out, float beta,
          const MemoryBlock* bias) {
  check_dtypes(a, b, out);
  BatchedProduct batch = batched_product(a, b, out, beta);
  if (!bias) return multiply_batch(batch, out.device);
  const int64_t n = batch.each.n;
  if (bias->shape != Shape{n}) fail("gemm: bias is ", bias->shape, ", expected ", Shape{n});
  if (bias->dtype != a.dtype && bias->dtype != out.dtype) {
    fail("gemm: dtype of bias is ", bias->dtype, ", expected ", a.dtype, " or ", out.dtype);
  }
  const DenseBlock dense = DenseBlock::of(*bias);
  batch.each.bias = static_cast<const MemoryBlock&>(dense).data;
  batch.each.bias_dtype = bias->dtype;
  multiply_batch(batch, out.device);
}

/// Views all but the last dim of `x` as rows of one matrix; nothing if its strides do not allow it.
static std::optional<Matrix> leading_as_rows(const MemoryBlock& x) {
  const int last = x.shape.ndim() - 1;
  Matrix rows{x.data, x.dtype, 0, x.strides[last]};
  if (x.numel() == 0) return rows;
  int64_t count = 1;
  for (int dim = last - 1; dim >= 0; --dim) {
    if (x.shape[dim] == 1) continue;
    if (count == 1) rows.row = x.strides[dim];
    if (x.strides[dim] != count * rows.row) return {};
    count *= x.shape[dim];
  }
  return rows;
}

/// Returns a block whose leading dims can be viewed as rows: x itself, or a copy.
static DenseBlock with_rows(const MemoryBlock& x) {
  return leading_as_rows(x) ? DenseBlock::as_it_is(x) : DenseBlock::of(x);
}

void gemm_over_leading(const MemoryBlock& a, const MemoryBlock& b, const MemoryBlock& out,
                       float beta) {
  check_dtypes(a, b, out);
  const int ndim = a.shape.ndim();
  bool agree = ndim == b.shape.ndim() && ndim >= 1 && out.shape.ndim() == 2;
  int64_t rows = 1;
  for (int i = 0; agree && i < ndim - 1; ++i) {
    agree = a.shape[i] == b.shape[i];
    rows *= a.shape[i];
  }
  if (!agree || out.shape[0] != a.shape.back() || out.shape[1] != b.shape.back()) {
    fail("gemm: out is ", out.shape, ", expected a ", a.shape, " over b ", b.shape,
         " by their leading dims");
  }
  const DenseBlock a_block = with_rows(a), b_block = with_rows(b);
  BatchedProduct one;
  one.each = {out.shape[0],
              out.shape[1],
              rows,
              leading_as_rows(a_block)->transposed(),
              *leading_as_rows(b_block),
              last_two(out),
              beta};
  multiply_batch(one, out.device);
}

}  // namespace weft
