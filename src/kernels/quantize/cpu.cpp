// SPDX-License-Identifier: Apache-2.0
// Compiled without contraction to FMA: the bits must be those of every other device.
#include <algorithm>
#include <vector>

#include "src/base/parallel.h"
#include "src/kernels/iteration/iteration.h"
#include "src/kernels/quantize/quantize.h"

namespace weft::host {
namespace {

/// Calls f(line, offset from `begin`, n) for the runs of rows that elements [begin, end) consist
/// of.
template <class F>
void for_each_run(const MemoryBlock& matrix, int64_t begin, int64_t end, const F& f) {
  const int64_t columns = matrix.shape[1];
  for (int64_t at = begin; at < end;) {
    const int64_t row = at / columns, column = at - row * columns;
    const int64_t n = std::min(columns - column, end - at);
    f(line_at(matrix, row * matrix.strides[0] + column), at - begin, n);
    at += n;
  }
}

/// Random words for consecutive codes, from a multiple of 4 on.
void fill_words(const CodeRounding& rounding, uint64_t first, int64_t n, uint32_t* words) {
  const WordStream stream(rounding.random.seed, rounding.random.stream);
  for (int64_t i = 0; i < n; i += 4) {
    const uint64_t counter = first / 4 + static_cast<uint64_t>(i / 4);
    stream(counter, words[i], words[i + 1], words[i + 2], words[i + 3]);
  }
}

struct Quantizing {
  const MemoryBlock& codes;
  const MemoryBlock& scales;
  const MemoryBlock& in;
  const MemoryBlock& residual;
  int64_t block;
  const CodeRounding& rounding;
};

template <class Code>
void quantize_block(const Quantizing& q, int64_t at, float* values, uint32_t* words) {
  const int64_t begin = at * q.block, end = std::min(q.codes.numel(), begin + q.block);
  const int64_t n = end - begin;
  for_each_run(q.in, begin, end, [&](const Line& from, int64_t offset, int64_t count) {
    load_line(values + offset, from, count);
  });
  float* missed = q.residual.data ? q.residual.as<float>() + begin : nullptr;
  if (missed) {
    for (int64_t i = 0; i < n; ++i) values[i] += missed[i];
  }
  uint32_t greatest = 0;
  for (int64_t i = 0; i < n; ++i) greatest = std::max(greatest, magnitude_bits(values[i]));
  const BlockScale scale = block_scale<Code>(greatest);
  if constexpr (kIsScaled<Code>) q.scales.as<float>()[at] = scale.scale;
  Code* codes = q.codes.as<Code>() + begin;
  const bool stochastic = q.rounding.stochastic;
  if (stochastic) {
    fill_words(q.rounding, q.rounding.first + static_cast<uint64_t>(begin), n, words);
  }
  for (int64_t i = 0; i < n; ++i) {
    codes[i] = code_of<Code>(values[i], scale, stochastic, stochastic ? words[i] : 0);
  }
  if (!missed) return;
  for (int64_t i = 0; i < n; ++i) missed[i] = missed_by(codes[i], values[i], scale);
}

/// Adds what codes stand for to `sum`.
template <class Code> void add_codes(const Code* codes, float scale, float* sum, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<float>(codes[i]) * scale;
}

}  // namespace

void quantize_blocks(const MemoryBlock& codes, const MemoryBlock& scales, const MemoryBlock& in,
                     const MemoryBlock& residual, int64_t block, const CodeRounding& rounding) {
  const Quantizing q{codes, scales, in, residual, block, rounding};
  visit_codes(codes.dtype, [&]<class Code>(Type<Code>) {
    const int64_t blocks = (codes.numel() + block - 1) / block;
    parallel_for(blocks, grain_of(4 * block), [&](int64_t begin, int64_t end) {
      std::vector<float> values(static_cast<size_t>(block));
      std::vector<uint32_t> words(rounding.stochastic ? static_cast<size_t>(block) : 0);
      for (int64_t at = begin; at < end; ++at) {
        quantize_block<Code>(q, at, values.data(), words.data());
      }
    });
  });
}

void dequantize_blocks(const MemoryBlock& out, const MemoryBlock& codes, const MemoryBlock& scales,
                       int64_t block, bool accumulate) {
  const int64_t n = out.numel(), arrays = codes.shape[0];
  visit_codes(codes.dtype, [&]<class Code>(Type<Code>) {
    parallel_for(
        (n + block - 1) / block, grain_of(block * arrays), [&](int64_t first, int64_t last) {
          std::vector<float> sum(static_cast<size_t>(block)), held(static_cast<size_t>(block));
          for (int64_t at = first; at < last; ++at) {
            const int64_t begin = at * block, end = std::min(n, begin + block);
            std::fill(sum.begin(), sum.end(), 0.0f);
            for (int64_t r = 0; r < arrays; ++r) {
              const float scale =
                  kIsScaled<Code> ? scales.as<float>()[r * scales.strides[0] + at] : 1.0f;
              add_codes(codes.as<Code>() + r * codes.strides[0] + begin, scale, sum.data(),
                        end - begin);
            }
            for_each_run(out, begin, end, [&](const Line& to, int64_t offset, int64_t count) {
              if (accumulate) {
                load_line(held.data(), to, count);
                for (int64_t i = 0; i < count; ++i)
                  sum[static_cast<size_t>(offset + i)] += held[static_cast<size_t>(i)];
              }
              store_line(to, sum.data() + offset, count);
            });
          }
        });
  });
}

}  // namespace weft::host

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
