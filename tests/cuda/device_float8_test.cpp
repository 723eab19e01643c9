// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/matmul/gemm.h"
#include "src/kernels/quantize/quantize.h"
#include "tests/cuda/twin.h"

namespace weft {

class DeviceFloat8 : public OnGpu {};

static constexpr DType kCodes[] = {DType::i8, DType::f8_e4m3, DType::bf16};

TEST_F(DeviceFloat8, ConvertsAsTheHostDoes) {
  for (int i = 0; i < kDTypes; ++i) {
    const auto other = static_cast<DType>(i);
    if (is_complex(other)) continue;
    for (const DType dtype : {DType::f8_e4m3, DType::f8_e5m2}) {
      SCOPED_TRACE(concat(other, " and ", dtype));
      const Twin in(Array::random(other, {7, 33}, Lie::dense, 1, 0, 90)),
          out(Array(dtype, {7, 33}));
      const Twin back(Array(other, {7, 33}));
      for (const Device d : kBothDevices) {
        copy(out.on(d), in.on(d));
        copy(back.on(d), out.on(d));
      }
      out.expect_alike(0);
      back.expect_alike(0);
    }
  }
}

TEST_F(DeviceFloat8, QuantizesAndSums) {
  constexpr int64_t kBlock = 32, kElements = 3 * 70;
  for (const DType dtype : kCodes) {
    for (const DType from : {DType::f32, DType::bf16}) {
      for (const bool stochastic : {false, true}) {
        SCOPED_TRACE(concat(dtype, " of ", from, stochastic ? ", stochastic" : ""));
        const int64_t scales = std::max<int64_t>(1, scales_of(dtype, kElements, kBlock));
        const Twin in(Array::random(from, {3, 70})), residual(Array(DType::f32, {1, kElements}));
        const Twin codes(Array(dtype, {1, kElements})), factors(Array(DType::f32, {1, scales}));
        const Twin out(Array(from, {3, 70}));
        const CodeRounding rounding{stochastic, {3, 4}, 8};
        for (const Device d : kBothDevices) {
          fill(residual.on(d), 0.125);
          quantize_blocks(codes.on(d), factors.on(d), in.on(d), residual.on(d), kBlock, rounding);
          fill(out.on(d), 1);
          dequantize_blocks(out.on(d), codes.on(d), factors.on(d), kBlock, true);
        }
        codes.expect_alike(0);
        factors.expect_alike(0);
        residual.expect_alike(0);
        out.expect_alike(0);
      }
    }
  }
}

TEST_F(DeviceFloat8, MultipliesRoundedNumbers) {
  // Sizes that cuBLASLt's products of f8 take, and some that they do not.
  for (const int64_t size : {32, 5}) {
    const Shape rows{2, size, size}, weights{size, size};
    const Twin x(Array::random(DType::f32, rows)),
        g(Array::random(DType::f32, rows, Lie::dense, 2));
    const Twin w(Array::random(DType::f32, weights, Lie::dense, 3));
    const Twin most(Array::of(DType::f32, {}, {3}));
    for (const LinearProduct product :
         {LinearProduct::forward, LinearProduct::input_gradient, LinearProduct::weight_gradient}) {
      const bool of_weight = product == LinearProduct::weight_gradient;
      const bool forward = product == LinearProduct::forward;
      const Twin out(Array::random(DType::f32, of_weight ? weights : rows));
      for (const Device d : kBothDevices) {
        float8_product(product, out.on(d), forward ? x.on(d) : g.on(d),
                       of_weight ? x.on(d) : w.on(d), most.on(d), most.on(d), of_weight);
      }
      // Tensor cores add products of f8 with about 14 bits (DeepSeek-V3's report, 3.3.2).
      out.expect_alike(128);
    }
  }
}

}  // namespace weft
