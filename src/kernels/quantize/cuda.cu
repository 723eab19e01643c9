// SPDX-License-Identifier: Apache-2.0
#include "src/device/cuda/runtime.h"
#include "src/device/kernel/elements.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/math/reducers.h"
#include "src/kernels/quantize/quantize.h"
#include "src/kernels/rows/rows.h"

namespace weft::cuda {

namespace {

constexpr int kQuantizeThreads = 128;
/// Largest grid, in thread blocks.
constexpr int64_t kMostQuantizeBlocks = 4096;

/// The elements of a matrix one by one.
Rows elements_of(const MemoryBlock& matrix) { return Rows(matrix, matrix.shape.ndim()); }

WEFT_DEVICE uint32_t word_at(const WordStream& stream, uint64_t element) {
  uint32_t words[4];
  stream(element / 4, words[0], words[1], words[2], words[3]);
  return words[element % 4];
}

/// A thread block quantizes one block of elements after another.
template <class Code> struct QuantizeKernel {
  Rows in;
  Code* codes;
  float* scales;
  float* residual;
  int64_t n, block;
  WordStream stream;
  bool stochastic;
  uint64_t first;

  WEFT_DEVICE float value(int64_t i) const {
    const float x = value_of<float>(in, i);
    return residual ? x + residual[i] : x;
  }

  template <class ThreadBlock> WEFT_DEVICE void operator()(const ThreadBlock& threads) const {
    for (int64_t at = threads.index(); at * block < n; at += threads.blocks()) {
      const int64_t begin = at * block, end = begin + block < n ? begin + block : n;
      uint32_t greatest = 0;
      for (int64_t i = begin + threads.thread(); i < end; i += threads.threads()) {
        greatest = GreatestOf::combine(greatest, magnitude_bits(value(i)));
      }
      greatest = threads.template reduce<GreatestOf>(greatest);
      const BlockScale scale = block_scale<Code>(greatest);
      if (kIsScaled<Code> && threads.thread() == 0) scales[at] = scale.scale;
      for (int64_t i = begin + threads.thread(); i < end; i += threads.threads()) {
        const uint32_t word =
            stochastic ? word_at(stream, first + static_cast<uint64_t>(i)) : uint32_t{0};
        const float x = value(i);
        const Code code = code_of<Code>(x, scale, stochastic, word);
        codes[i] = code;
        if (residual) residual[i] = missed_by(code, x, scale);
      }
    }
  }
};

template <class Code> struct DequantizeKernel {
  Rows out;
  const Code* codes;
  int64_t codes_stride;
  const float* scales;
  int64_t scales_stride;
  int64_t n, block, arrays;
  bool accumulate;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < n; i += thread.count) {
      float sum = 0;
      for (int64_t r = 0; r < arrays; ++r) {
        const float scale = kIsScaled<Code> ? scales[r * scales_stride + i / block] : 1.0f;
        sum = sum + static_cast<float>(codes[r * codes_stride + i]) * scale;
      }
      const int64_t place = out.at(i);
      if (accumulate) sum = sum + load_element<float>(out.data(), out.dtype(), place);
      store_element(out.data(), out.dtype(), place, sum);
    }
  }
};

}  // namespace

void quantize_blocks(const MemoryBlock& codes, const MemoryBlock& scales, const MemoryBlock& in,
                     const MemoryBlock& residual, int64_t block, const CodeRounding& rounding) {
  const int64_t n = codes.numel(), blocks = (n + block - 1) / block;
  const WordStream stream(rounding.random.seed, rounding.random.stream);
  visit_codes(codes.dtype, [&]<class Code>(Type<Code>) {
    const QuantizeKernel<Code> kernel{
        elements_of(in), codes.as<Code>(), scales.as<float>(),  residual.as<float>(), n,
        block,           stream,           rounding.stochastic, rounding.first};
    launch_blocks<kQuantizeThreads>(kernel, std::min(blocks, kMostQuantizeBlocks), 0,
                                    current_stream(codes.device));
  });
}

void dequantize_blocks(const MemoryBlock& out, const MemoryBlock& codes, const MemoryBlock& scales,
                       int64_t block, bool accumulate) {
  const int64_t n = out.numel();
  visit_codes(codes.dtype, [&]<class Code>(Type<Code>) {
    const DequantizeKernel<Code> kernel{elements_of(out),
                                        codes.as<Code>(),
                                        codes.strides[0],
                                        scales.as<float>(),
                                        scales.strides[0],
                                        n,
                                        block,
                                        codes.shape[0],
                                        accumulate};
    launch(kernel, n, current_stream(out.device));
  });
}

}  // namespace weft::cuda
