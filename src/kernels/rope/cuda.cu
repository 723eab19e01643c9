// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/rope/rope.h"

#include "src/kernels/copy/copy.h"
#include "src/kernels/math/math.h"
#include "src/kernels/rows/device_rows.h"

namespace weft::cuda {

namespace {

/// Positions whose angles a thread block computes; they share each power of theta.
constexpr int64_t kTablePositions = 16;

/// Fills a table of cosines and sines of all positions, in f32 where Hugging Face's code uses it.
struct FillRopeTable {
  double theta;
  int64_t offset, positions, half;
  /// nullptr: those of theta.
  const float* frequencies;
  /// nullptr: positions from `offset` on.
  const int64_t* given;
  float *cosines, *sines;

  template <class ThreadBlock> WEFT_DEVICE void operator()(const ThreadBlock& block) const {
    const int64_t begin = block.index() * kTablePositions;
    const int64_t end = begin + kTablePositions < positions ? begin + kTablePositions : positions;
    for (int64_t i = block.thread(); i < half; i += block.threads()) {
      const float exponent = static_cast<float>(2 * i) / static_cast<float>(2 * half);
      const auto power = static_cast<float>(pow(theta, static_cast<double>(exponent)));
      const float frequency = frequencies ? frequencies[i] : 1.0f / power;
      for (int64_t p = begin; p < end; ++p) {
        const float angle = static_cast<float>(given ? given[p] : offset + p) * frequency;
        cosines[p * half + i] = cos(angle);
        sines[p * half + i] = sin(angle);
      }
    }
  }
};

/// One thread per chunk of the first half of a head and its counterpart in the second.
template <class Line> struct RotateRows {
  using C = typename Line::C;
  using Angles = Chunk<float, Line::kN>;

  RopeRows rows;
  const float *cosines, *sines;
  C scale, sign;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    const int64_t chunks = rows.pairs / Line::kN;
    for (int64_t i = thread.index; i < rows.x.count() * chunks; i += thread.count) {
      const int64_t r = i / chunks, c = i - r * chunks;
      const int64_t at = r / rows.inside % rows.positions * chunks + c;
      const Line in(rows.x, r), out(rows.y, r);
      const auto a = in.read(c), b = in.read(c + chunks);
      const Angles cosine = reinterpret_cast<const Angles*>(cosines)[at];
      const Angles sine = reinterpret_cast<const Angles*>(sines)[at];
      typename Line::Values first, second;
      for (int k = 0; k < Line::kN; ++k) {
        const C cos_of = scale * static_cast<C>(cosine.element[k]);
        const C sin_of = sign * scale * static_cast<C>(sine.element[k]);
        first.element[k] = a.element[k] * cos_of - b.element[k] * sin_of;
        second.element[k] = b.element[k] * cos_of + a.element[k] * sin_of;
      }
      out.write(c, first);
      out.write(c + chunks, second);
    }
  }
};

}  // namespace

void rope(const MemoryBlock& y, const MemoryBlock& x, int sequence_dim, const Rope& options,
          const MemoryBlock* frequencies, const MemoryBlock* positions) {
  const RopeRows rows(y, x, sequence_dim, frequencies, positions);
  const int64_t count = rows.x.count(), angles = rows.positions * rows.pairs;
  if (rows.rest() > 0 && y.data != x.data) cuda::copy(y, x);
  if (rows.pairs == 0 || count == 0) return;
  const RowPlan plan = plan_rows("rope", x.device, count, rows.pairs, {.rows = {&rows.x, &rows.y}});
  const DenseMemory memory({2 * angles}, DType::f32, x.device);
  auto* cosines = memory.block.as<float>();
  const FillRopeTable table{options.theta,    options.offset, rows.positions, rows.pairs,
                            rows.frequencies, rows.given,     cosines,        cosines + angles};
  launch_blocks<64>(table, (rows.positions + kTablePositions - 1) / kTablePositions, 0,
                    plan.stream);
  visit_lines(plan, [&]<class Line>(Type<Line>) {
    using C = typename Line::C;
    const C scale = static_cast<C>(options.scale), sign = options.inverse ? -1 : 1;
    launch(RotateRows<Line>{rows, table.cosines, table.sines, scale, sign},
           count * (rows.pairs / Line::kN), plan.stream);
  });
}

}  // namespace weft::cuda
