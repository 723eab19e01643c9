// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/quantize/quantize.h"

#include "weft/error.h"

namespace weft {

static void check_codes(const char* what, const MemoryBlock& matrix, int64_t codes, int64_t scales,
                        DType dtype, int64_t block) {
  if (block < 4 || block % 4 != 0) {
    fail(what, ": block is ", block, ", expected a positive multiple of 4");
  }
  if (!is_floating(matrix.dtype) || is_float8(matrix.dtype) || matrix.shape.ndim() != 2) {
    fail(what, ": numbers are ", matrix.shape, " of ", matrix.dtype,
         ", expected a matrix of f32, bf16, f16 or f64");
  }
  if (matrix.numel() != codes || scales != scales_of(dtype, codes, block)) {
    fail(what, ": numbers, codes and scales are ", matrix.numel(), ", ", codes, " and ", scales,
         ", expected ", codes, ", ", codes, " and ", scales_of(dtype, codes, block));
  }
}

void quantize(const MemoryBlock& codes, const MemoryBlock& scales, const MemoryBlock& in,
              const MemoryBlock& residual, int64_t block, const CodeRounding& rounding) {
  check_codes("quantize", in, codes.numel(), scales.numel(), codes.dtype, block);
  if (codes.numel() > 0) quantize_blocks(codes, scales, in, residual, block, rounding);
}

void dequantize(const MemoryBlock& out, const MemoryBlock& codes, const MemoryBlock& scales,
                int64_t block, bool accumulate) {
  check_codes("dequantize", out, codes.shape[1], scales.shape[1], codes.dtype, block);
  if (out.numel() > 0) dequantize_blocks(out, codes, scales, block, accumulate);
}

}  // namespace weft
