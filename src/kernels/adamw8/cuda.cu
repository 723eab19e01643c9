// SPDX-License-Identifier: Apache-2.0
#include "src/device/cuda/runtime.h"
#include "src/device/kernel/elements.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/adamw8/adamw8.h"
#include "src/kernels/math/reducers.h"

namespace weft::cuda {

namespace {

constexpr int kAdamW8Threads = 128;
/// Largest grid, in thread blocks.
constexpr int64_t kMostAdamW8Blocks = 16384;

/// An array of any floating dtype.
struct FloatingSide {
  void* data;
  DType dtype;
};

/// A thread block handles one part of a row after another.
struct AdamW8Kernel {
  AdamW8Element element;
  AdamW8Grid grid;
  int64_t parts, scale_columns;
  FloatingSide parameter, grad, factor;
  uint8_t *m, *v;
  const float *m_scales, *v_scales;
  float *new_m_scales, *new_v_scales;

  template <class ThreadBlock> WEFT_DEVICE void operator()(const ThreadBlock& threads) const {
    for (int64_t i = threads.index(); i < parts; i += threads.blocks()) {
      const AdamW8Part part = grid.at(i);
      const int64_t scale = part.row * scale_columns + part.block;
      parameter.data ? take(threads, part, scale) : find_scales(threads, part, scale);
    }
  }

  WEFT_DEVICE void moments(int64_t at, int64_t scale, float& new_m, float& new_v) const {
    new_m = m_of(m[at], unit_of(m_scales[scale]));
    new_v = v_of(v[at], unit_of(v_scales[scale]));
    const float times = load_element<float>(factor.data, factor.dtype, 0);
    element.moments(new_m, new_v, load_element<float>(grad.data, grad.dtype, at) * times);
  }

  template <class ThreadBlock>
  WEFT_DEVICE void find_scales(const ThreadBlock& threads, const AdamW8Part& part,
                               int64_t scale) const {
    uint32_t greatest_m = 0, greatest_v = 0;
    for (int64_t j = part.begin + threads.thread(); j < part.end; j += threads.threads()) {
      float new_m, new_v;
      moments(part.row * grid.columns + j, scale, new_m, new_v);
      greatest_m = GreatestOf::combine(greatest_m, std::bit_cast<uint32_t>(new_m) & 0x7fffffffu);
      greatest_v = GreatestOf::combine(greatest_v, std::bit_cast<uint32_t>(new_v) & 0x7fffffffu);
    }
    greatest_m = threads.template reduce<GreatestOf>(greatest_m);
    greatest_v = threads.template reduce<GreatestOf>(greatest_v);
    if (threads.thread() != 0) return;
    new_m_scales[scale] = std::bit_cast<float>(greatest_m);
    new_v_scales[scale] = std::bit_cast<float>(greatest_v);
  }

  template <class ThreadBlock>
  WEFT_DEVICE void take(const ThreadBlock& threads, const AdamW8Part& part, int64_t scale) const {
    const float factor_m = factor_of(new_m_scales[scale]);
    const float factor_v = factor_of(new_v_scales[scale]);
    for (int64_t j = part.begin + threads.thread(); j < part.end; j += threads.threads()) {
      const int64_t at = part.row * grid.columns + j;
      float new_m, new_v;
      moments(at, scale, new_m, new_v);
      const float p = load_element<float>(parameter.data, parameter.dtype, at);
      store_element(parameter.data, parameter.dtype, at, element.moved(p, new_m, new_v));
      m[at] = m_code(new_m, factor_m);
      v[at] = v_code(new_v, factor_v);
    }
  }
};

}  // namespace

void adamw8(const AdamW8Blocks& b, const AdamWNumbers& numbers) {
  if (b.grad.numel() == 0) return;
  const auto side = [](const MemoryBlock& block) { return FloatingSide{block.data, block.dtype}; };
  const AdamW8Grid grid = grid_of(b);
  const AdamW8Kernel kernel{element8_of(numbers),
                            grid,
                            grid.blocks * b.grad.shape[0],
                            b.m_scales.shape[1],
                            side(b.parameter),
                            side(b.grad),
                            side(b.factor),
                            b.m.as<uint8_t>(),
                            b.v.as<uint8_t>(),
                            b.m_scales.as<float>(),
                            b.v_scales.as<float>(),
                            b.new_m_scales.as<float>(),
                            b.new_v_scales.as<float>()};
  launch_blocks<kAdamW8Threads>(kernel, std::min(kernel.parts, kMostAdamW8Blocks), 0,
                                current_stream(b.grad.device));
}

}  // namespace weft::cuda
