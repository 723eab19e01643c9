// SPDX-License-Identifier: Apache-2.0
// Compiled without contraction to FMA: the bits must be those of every other device, and the
// moments those from which the scales were found.
#include <algorithm>
#include <cmath>

#include "src/base/parallel.h"
#include "src/kernels/adamw8/adamw8.h"
#include "src/kernels/iteration/iteration.h"
#include "weft/error.h"

namespace weft {

void check_blocks(const AdamW8Blocks& b) {
  const auto check = [](const MemoryBlock& block, const char* name, DType dtype) {
    if (block.data && block.dtype != dtype) {
      fail("adamw8: dtype of ", name, " is ", block.dtype, ", expected ", dtype);
    }
    if (block.data && !block.is_dense()) {
      fail("adamw8: ", name, ' ', block.shape, " has strides, expected a dense array");
    }
  };
  check(b.parameter, "the parameter", b.parameter.dtype);
  for (const MemoryBlock* codes : {&b.m, &b.v}) check(*codes, "codes", DType::u8);
  for (const MemoryBlock* scales : {&b.m_scales, &b.v_scales, &b.new_m_scales, &b.new_v_scales}) {
    check(*scales, "scales", DType::f32);
  }
  for (const MemoryBlock* floating : {&b.parameter, &b.grad}) {
    if (floating->data && (!is_floating(floating->dtype) || is_float8(floating->dtype))) {
      fail("adamw8: dtype of the parameter or gradient is ", floating->dtype,
           ", expected f32, bf16, f16 or f64");
    }
  }
}

}  // namespace weft

namespace weft::host {
namespace {

/// The moments of a part of a row after the step.
struct PartMoments {
  float m[kAdamW8Block], v[kAdamW8Block];
};

void find_moments(const AdamW8Blocks& b, const AdamW8Element& element, float factor,
                  const AdamW8Part& part, PartMoments& after) {
  const int64_t columns = b.grad.shape[1], n = part.end - part.begin;
  const int64_t at = part.row * columns + part.begin;
  const int64_t scale = part.row * b.m_scales.shape[1] + part.block;
  const float unit_m = unit_of(b.m_scales.as<float>()[scale]);
  const float unit_v = unit_of(b.v_scales.as<float>()[scale]);
  const uint8_t *m = b.m.as<uint8_t>() + at, *v = b.v.as<uint8_t>() + at;
  float gradient[kAdamW8Block];
  load_line(gradient, line_at(b.grad, at), n);
  for (int64_t i = 0; i < n; ++i) {
    after.m[i] = m_of(m[i], unit_m);
    after.v[i] = v_of(v[i], unit_v);
    element.moments(after.m[i], after.v[i], gradient[i] * factor);
  }
}

uint32_t greatest_bits(const float* values, int64_t n) {
  uint32_t greatest = 0;
  for (int64_t i = 0; i < n; ++i) {
    greatest = std::max(greatest, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu);
  }
  return greatest;
}

void take_part(const AdamW8Blocks& b, const AdamW8Element& element, const AdamW8Part& part,
               const PartMoments& after) {
  const int64_t n = part.end - part.begin, at = part.row * b.grad.shape[1] + part.begin;
  const int64_t scale = part.row * b.m_scales.shape[1] + part.block;
  const float factor_m = factor_of(b.new_m_scales.as<float>()[scale]);
  const float factor_v = factor_of(b.new_v_scales.as<float>()[scale]);
  uint8_t *m = b.m.as<uint8_t>() + at, *v = b.v.as<uint8_t>() + at;
  float parameter[kAdamW8Block];
  const Line line = line_at(b.parameter, at);
  load_line(parameter, line, n);
  for (int64_t i = 0; i < n; ++i) {
    parameter[i] = element.moved(parameter[i], after.m[i], after.v[i]);
    m[i] = m_code(after.m[i], factor_m);
    v[i] = v_code(after.v[i], factor_v);
  }
  store_line(line, parameter, n);
}

}  // namespace

void adamw8(const AdamW8Blocks& blocks, const AdamWNumbers& numbers) {
  if (blocks.grad.numel() == 0) return;
  const AdamW8Element element = element8_of(numbers);
  const AdamW8Grid grid = grid_of(blocks);
  float factor = 1;
  load_line(&factor, line_at(blocks.factor, 0), 1);
  const int64_t parts = grid.blocks * blocks.grad.shape[0];
  parallel_for(parts, grain_of(kAdamW8Block), [&](int64_t begin, int64_t end) {
    PartMoments after;
    for (int64_t i = begin; i < end; ++i) {
      const AdamW8Part part = grid.at(i);
      find_moments(blocks, element, factor, part, after);
      if (blocks.parameter.data) {
        take_part(blocks, element, part, after);
        continue;
      }
      const int64_t scale = part.row * blocks.m_scales.shape[1] + part.block;
      const int64_t n = part.end - part.begin;
      blocks.new_m_scales.as<uint32_t>()[scale] = greatest_bits(after.m, n);
      blocks.new_v_scales.as<uint32_t>()[scale] = greatest_bits(after.v, n);
    }
  });
}

}  // namespace weft::host
