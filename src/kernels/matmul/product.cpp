// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/matmul/product.h"

#include "src/kernels/matmul/narrow.h"
#include "src/kernels/matmul/plain.h"

#ifdef WEFT_WITH_ONEDNN
#include "src/kernels/matmul/onednn.h"
#endif

namespace weft {

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
