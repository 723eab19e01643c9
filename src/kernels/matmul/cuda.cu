// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/matmul/product.h"

#include "src/device/cuda/runtime.h"
#include "src/device/kernel/elements.h"
#include "src/device/kernel/launch.h"

namespace weft::cuda {

namespace {

/// One thread per element of the result.
template <class C> struct PlainProduct {
  BatchedProduct batch;
  int64_t elements;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    const Product& p = batch.each;
    for (int64_t i = thread.index; i < elements; i += thread.count) {
      const int64_t n = i % p.n, m = i / p.n % p.m;
      int64_t a = m * p.a.row, b = n * p.b.column, c = m * p.c.row + n * p.c.column;
      int64_t index = i / (p.n * p.m);
      for (int d = 0; d < batch.ndim; ++d) {
        const int64_t at = index % batch.dims[d].size;
        index /= batch.dims[d].size;
        a += at * batch.dims[d].a;
        b += at * batch.dims[d].b;
        c += at * batch.dims[d].c;
      }
      C sum = C(0);
      for (int64_t k = 0; k < p.k; ++k) {
        sum = sum + load_element<C>(p.a.data, p.a.dtype, a + k * p.a.column) *
                        load_element<C>(p.b.data, p.b.dtype, b + k * p.b.row);
      }
      if (p.bias) sum = sum + load_element<C>(p.bias, p.bias_dtype, n);
      if (p.beta != 0) {
        sum = sum + static_cast<C>(p.beta) * load_element<C>(p.c.data, p.c.dtype, c);
      }
      store_element(p.c.data, p.c.dtype, c, sum);
    }
  }
};

}  // namespace

void multiply_batch(const BatchedProduct& batch, Device device) {
  const int64_t elements = batch.count() * batch.each.m * batch.each.n;
  if (elements == 0) return;
#ifndef WEFT_CUDA_EMULATED
  if (multiply_by_cublaslt(batch, device)) return;
#endif
  visit_compute(batch.each.a.dtype, [&]<class C>(Type<C>) {
    launch(PlainProduct<C>{batch, elements}, elements, current_stream(device));
  });
}

void multiply_each(std::span<const Product> products, Device device) {
#ifndef WEFT_CUDA_EMULATED
  if (multiply_each_by_cublas(products, device)) return;
#endif
  for (const Product& product : products) {
    BatchedProduct one;
    one.each = product;
    cuda::multiply_batch(one, device);
  }
}

}  // namespace weft::cuda
