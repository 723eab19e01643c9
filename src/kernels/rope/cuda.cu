// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/rope/cuda.h"

#include "src/kernels/math/math.h"
#include "src/kernels/rows/device_rows.h"
#include "weft/storage.h"

namespace weft::cuda {

namespace {

/// Positions whose angles a thread block computes; they share each power of theta.
constexpr int64_t kTablePositions = 16;

/// Fills a table of cosines and sines of all positions, in f32 where Hugging Face's code uses it.
struct FillRopeTable {
  double theta;
  int64_t offset, positions, half;
  float *cosines, *sines;

  template <class Team>
  WEFT_DEVICE void operator()(const Team& team) const {
    const int64_t begin = team.team() * kTablePositions;
    const int64_t end = begin + kTablePositions < positions ? begin + kTablePositions : positions;
    for (int64_t i = team.thread(); i < half; i += team.threads()) {
      const float exponent = static_cast<float>(2 * i) / static_cast<float>(2 * half);
      const auto power = static_cast<float>(pow(theta, static_cast<double>(exponent)));
      const float frequency = 1.0f / power;
      for (int64_t p = begin; p < end; ++p) {
        const float angle = static_cast<float>(offset + p) * frequency;
        cosines[p * half + i] = cos(angle);
        sines[p * half + i] = sin(angle);
      }
    }
  }
};

/// One thread per chunk of the first half of a head and its counterpart in the second.
template <class Line>
struct RotateRows {
  using C = typename Line::C;
  using Angles = Chunk<float, Line::kN>;

  int64_t count, half, positions;
  /// Number of consecutive rows that have one position.
  int64_t inside;
  RowSide x, y;
  const float *cosines, *sines;
  C sign;

  WEFT_DEVICE void operator()(const Lane& lane) const {
    const int64_t chunks = half / Line::kN;
    for (int64_t i = lane.index; i < count * chunks; i += lane.count) {
      const int64_t r = i / chunks, c = i - r * chunks, at = r / inside % positions * chunks + c;
      const Line in(x, r), out(y, r);
      const auto a = in.read(c), b = in.read(c + chunks);
      const Angles cosine = reinterpret_cast<const Angles*>(cosines)[at];
      const Angles sine = reinterpret_cast<const Angles*>(sines)[at];
      typename Line::Values first, second;
      for (int k = 0; k < Line::kN; ++k) {
        const C cos_of = static_cast<C>(cosine.element[k]);
        const C sin_of = sign * static_cast<C>(sine.element[k]);
        first.element[k] = a.element[k] * cos_of - b.element[k] * sin_of;
        second.element[k] = b.element[k] * cos_of + a.element[k] * sin_of;
      }
      out.write(c, first);
      out.write(c + chunks, second);
    }
  }
};

struct RopeCall {
  RowSide x, y;
  int64_t count, half, positions, inside;
  const float *cosines, *sines;
  bool inverse;
  Stream stream;
};

}  // namespace

template <class Line>
static void rotate(const RopeCall& call) {
  const RotateRows<Line> kernel{call.count,   call.half,  call.positions,
                                call.inside,  call.x,     call.y,
                                call.cosines, call.sines, typename Line::C(call.inverse ? -1 : 1)};
  launch(kernel, call.count * (call.half / Line::kN), call.stream);
}

void rope(const Block& y, const Block& x, int sequence_dim, const Rope& options) {
  const int last = x.shape.ndim() - 1;
  const Rows rows(x, last);
  RopeCall call{RowSide(x, last),
                RowSide(y, last),
                rows.count(),
                rows.size() / 2,
                x.shape[sequence_dim],
                1,
                nullptr,
                nullptr,
                options.inverse,
                {}};
  if (call.half == 0 || call.count == 0) return;
  for (int i = sequence_dim + 1; i < last; ++i) call.inside *= x.shape[i];
  const RowPlan plan =
      plan_rows("rope", x.device, call.count, call.half, {&call.x, &call.y}, {}, 0);
  call.stream = plan.stream;
  const int64_t angles = call.positions * call.half;
  const Ref<Storage> memory =
      Storage::allocate(static_cast<size_t>(angles) * 2 * sizeof(float), x.device);
  auto* cosines = static_cast<float*>(memory->data());
  const FillRopeTable table{options.theta, options.offset, call.positions,
                            call.half,     cosines,        cosines + angles};
  launch_teams<64>(table, (call.positions + kTablePositions - 1) / kTablePositions, 0, plan.stream);
  call.cosines = table.cosines, call.sines = table.sines;
  visit_lines(plan, [&](auto type) { rotate<typename decltype(type)::type>(call); });
}

}  // namespace weft::cuda
