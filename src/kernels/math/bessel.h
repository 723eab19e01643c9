// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "src/kernels/math/logarithms.h"

namespace weft {

/// The modified Bessel function I of order 0 or 1 of floats, to 1 ulp, without branches: below 8 a
/// polynomial of x^2, from there exp(x) / sqrt(x) times one of 1 / x, fitted by Chebyshev
/// polynomials.
WEFT_FN inline float bessel_i_of(int64_t order, float x) {
  // Beyond 200 the result is infinite.
  const double size = std::fabs(x) < 200.0f ? static_cast<double>(std::fabs(x)) : 200.0;
  const double near = size < 8 ? size : 8.0, far = size < 8 ? 8.0 : size;
  const double t = near * near / 32 - 1, u = 16 / far - 1;
  const double of_order_0 = polynomial(
      t, 0x1.43d568p-17, 0x1.5d1e735p-13, 0x1.21b4bf8f8p-9, 0x1.8cd166aaap-6, 0x1.b58851b84e8p-3,
      0x1.7a643dc798b80p+0, 0x1.f179494dfc650p+2, 0x1.dd563de4ea7bcp+4, 0x1.3c6611ef99383p+6,
      0x1.0b7995af771f6p+7, 0x1.f8c623280569ap+6, 0x1.89ab1e7a0813cp+5);
  const double of_order_1 =
      near * polynomial(t, 0x1.a3b79d8p-22, 0x1.e00c4f7p-18, 0x1.b194f1b26p-14, 0x1.45a448be28p-10,
                        0x1.8cd3dcc6b18p-7, 0x1.7ed809bfcc340p-4, 0x1.1bcb2f1195325p-1,
                        0x1.36ebcc3c94759p+1, 0x1.dd563dc814714p+2, 0x1.da991aef8ba8ep+3,
                        0x1.0b7995b00e7fbp+4, 0x1.f8c62327dbf3ep+2);
  const double tail_of_order_0 =
      polynomial(u, 0x1.aba664b27a178p-30, 0x1.0f9da5a66e656p-25, 0x1.c56919d082627p-24,
                 0x1.49feabd9fa955p-22, 0x1.8cc38a65a77d8p-20, 0x1.75ca4a7032fa2p-17,
                 0x1.1daad30afc5eap-13, 0x1.b8796bf2f304ep-9, 0x1.9bd428ace89b6p-2);
  const double tail_of_order_1 =
      polynomial(u, -0x1.3f452a905daf5p-29, -0x1.334c0a98fac50p-25, -0x1.fb2d1e74ae2c6p-24,
                 -0x1.80dc96efce059p-22, -0x1.eadc0e733ff11p-20, -0x1.f87ff785e4a0ep-17,
                 -0x1.cbc5b941ac80cp-13, -0x1.3f79622a427bfp-7, 0x1.8ebe783ac8ca1p-2);
  const double power = exp2_wide(far * 0x1.71547652b82fep+0) / ::sqrt(far);
  const double small = order == 1 ? of_order_1 : of_order_0;
  const double large = power * (order == 1 ? tail_of_order_1 : tail_of_order_0);
  const auto value = static_cast<float>(size < 8 ? small : large);
  const float result = order == 1 ? std::copysign(value, x) : value;
  return x != x ? x : result;
}

}  // namespace weft
