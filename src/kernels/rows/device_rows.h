// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "src/device/cuda/streams.h"
#include "src/device/kernel/elements.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/map/cuda_kernel.h"
#include "src/kernels/rows/row_side.h"
#include "src/kernels/rows/rows.h"
#include "weft/block.h"

namespace weft::cuda {

// Kernels over rows: a thread block processes a row, and its threads stride over the row's chunks.
// Data that several passes read is kept in shared memory. Each thread rereads only its own chunks,
// so no barrier is needed between passes.

/// One value for each of `rows`, laid out as in Rows::values.
RowSide value_side(const char* what, const Block& block, const Rows& rows);

/// How a kernel processes its rows.
struct RowPlan {
  int64_t count, size;
  /// True when all rows are dense, of `dtype` (f32, bf16 or f16), and read 16 bytes at a time.
  /// Otherwise rows are read an element at a time, and `dtype` is the compute type, f32 or f64.
  bool dense;
  DType dtype;
  int threads;
  /// Bytes of shared memory per thread block; 0 when rows are too long and are read again.
  size_t held_bytes;
  /// Thread blocks: one per row, unless a kernel uses fewer.
  int64_t teams;
  Stream stream;
};

/// Plans a kernel over `count` rows of `size`. `rows` are all sides that are rows; the first sets
/// the dtype. `vectors` are read along with each row; `held` rows of computed elements go to shared
/// memory. Sides without data are skipped. std::invalid_argument "what: ..." for integers.
RowPlan plan_rows(const char* what, Device device, int64_t count, int64_t size,
                  std::initializer_list<const RowSide*> rows,
                  std::initializer_list<const RowSide*> vectors, int held);

inline namespace WEFT_COMPILER {

template <class C>
WEFT_DEVICE C value_of(const RowSide& side, int64_t row) {
  return load_element<C>(side.data, side.dtype, side.at(row));
}
template <class C>
WEFT_DEVICE void set_value(const RowSide& side, int64_t row, C value) {
  store_element(side.data, side.dtype, side.at(row), value);
}

/// Elements of a row that one thread processes at a time, in the compute type.
template <class C, int kN>
struct alignas(kN * sizeof(C) < 16 ? kN * sizeof(C) : 16) Chunk {
  C element[kN];
};

/// A row of dense S.
template <class S>
class DenseLine {
 public:
  using C = Compute<S>;
  static constexpr int kN = Vector<S>::kElements;
  using Values = Chunk<C, kN>;

  WEFT_DEVICE DenseLine(const RowSide& side, int64_t row)
      : data_(reinterpret_cast<Vector<S>*>(static_cast<S*>(side.data) + side.at(row))) {}
  WEFT_DEVICE Values read(int64_t chunk) const {
    const Vector<S> vector = data_[chunk];
    Values values;
    for (int i = 0; i < kN; ++i) values.element[i] = static_cast<C>(vector.element[i]);
    return values;
  }
  WEFT_DEVICE void write(int64_t chunk, const Values& values) const {
    Vector<S> vector;
    for (int i = 0; i < kN; ++i) vector.element[i] = static_cast<S>(values.element[i]);
    data_[chunk] = vector;
  }

 private:
  Vector<S>* data_;
};

/// A row of any dtype and stride.
template <class T>
class AnyLine {
 public:
  using C = T;
  static constexpr int kN = 1;
  using Values = Chunk<C, 1>;

  WEFT_DEVICE AnyLine(const RowSide& side, int64_t row) : side_(side), base_(side.at(row)) {}
  WEFT_DEVICE Values read(int64_t chunk) const {
    return {load_element<C>(side_.data, side_.dtype, base_ + chunk * side_.stride)};
  }
  WEFT_DEVICE void write(int64_t chunk, const Values& values) const {
    store_element(side_.data, side_.dtype, base_ + chunk * side_.stride, values.element[0]);
  }

 private:
  const RowSide& side_;
  int64_t base_;
};

/// A row that several passes read; from global memory only once when it fits in shared memory.
template <class Line>
class HeldLine {
 public:
  using Values = typename Line::Values;

  /// `held` is null when the row does not fit.
  WEFT_DEVICE HeldLine(const RowSide& side, int64_t row, Values* held)
      : line_(side, row), held_(held) {}
  WEFT_DEVICE Values read(int64_t chunk) const {
    if (kept_) return held_[chunk];
    const Values values = line_.read(chunk);
    if (held_) held_[chunk] = values;
    return values;
  }
  /// Marks the row as read completely, so that later passes read the shared memory.
  WEFT_DEVICE void keep() { kept_ = held_ != nullptr; }

 private:
  Line line_;
  Values* held_;
  bool kept_ = false;
};

template <class Run, class Values>
WEFT_DEVICE Values read_run(const void* data, int64_t chunk) {
  const Run run = static_cast<const Run*>(data)[chunk];
  Values values;
  for (size_t i = 0; i < std::size(run.element); ++i) {
    values.element[i] = static_cast<float>(run.element[i]);
  }
  return values;
}

/// A vector read along with every row; a constant when it has no data.
template <class Line>
class VectorLine {
 public:
  using C = typename Line::C;
  using Values = typename Line::Values;

  WEFT_DEVICE VectorLine(const RowSide& side, C absent) : side_(side), absent_(absent) {}
  WEFT_DEVICE Values read(int64_t chunk) const {
    Values values;
    if (!side_.data) {
      for (int i = 0; i < Line::kN; ++i) values.element[i] = absent_;
    } else if constexpr (Line::kN == 1) {
      values.element[0] = load_element<C>(side_.data, side_.dtype, chunk * side_.stride);
    } else if (side_.dtype == DType::f32) {
      values = read_run<Chunk<float, Line::kN>, Values>(side_.data, chunk);
    } else if (side_.dtype == DType::f16) {
      values = read_run<Chunk<float16, Line::kN>, Values>(side_.data, chunk);
    } else {
      values = read_run<Chunk<bfloat16, Line::kN>, Values>(side_.data, chunk);
    }
    return values;
  }
  WEFT_DEVICE void keep() const {}

 private:
  const RowSide& side_;
  C absent_;
};

template <class R, class C, class F, class Values, class... More>
WEFT_DEVICE void combine_chunk(C& value, const F& f, const Values& first, const More&... more) {
  for (size_t i = 0; i < std::size(first.element); ++i) {
    value = R::combine(value, R::element(f(first.element[i], more.element[i]...)));
  }
}

/// Combines the reducer elements f(lines...) over a row.
template <class R, class Team, class F, class Line, class... Lines>
WEFT_DEVICE auto reduce_line(const Team& team, int64_t chunks, const F& f, Line& line,
                             Lines&... lines) {
  using C = std::remove_cvref_t<decltype(line.read(0).element[0])>;
  C value = R::template identity<C>();
  for (int64_t c = team.thread(); c < chunks; c += team.threads()) {
    combine_chunk<R>(value, f, line.read(c), lines.read(c)...);
  }
  line.keep();
  (lines.keep(), ...);
  return team.template reduce<R>(value);
}

template <class F, class Values, class... More>
WEFT_DEVICE Values map_chunk(const F& f, const Values& first, const More&... more) {
  Values result;
  for (size_t i = 0; i < std::size(first.element); ++i) {
    result.element[i] = f(first.element[i], more.element[i]...);
  }
  return result;
}

/// out = f(lines...); out may be one of the lines.
template <class Team, class F, class Out, class... Lines>
WEFT_DEVICE void map_line(const Team& team, int64_t chunks, const F& f, const Out& out,
                          Lines&... lines) {
  for (int64_t c = team.thread(); c < chunks; c += team.threads()) {
    out.write(c, map_chunk(f, lines.read(c)...));
  }
}

/// The rows of a kernel, over which thread blocks stride.
struct RowWork {
  int64_t count = 0, size = 0;
  bool holds = false;

  /// Returns the shared memory of held row `i`.
  template <class Line, class Team>
  WEFT_DEVICE typename Line::Values* held(const Team& team, int i) const {
    using Values = typename Line::Values;
    return holds ? team.template shared<Values>() + i * (size / Line::kN) : nullptr;
  }
};

/// Calls visitor(Type<Line>{}) with the Line that reads the plan's rows.
template <class Visitor>
void visit_lines(const RowPlan& plan, Visitor&& visitor) {
  if (!plan.dense) {
    if (plan.dtype == DType::f64) return visitor(Type<AnyLine<double>>{});
    return visitor(Type<AnyLine<float>>{});
  }
  if (plan.dtype == DType::f32) return visitor(Type<DenseLine<float>>{});
  if (plan.dtype == DType::f16) return visitor(Type<DenseLine<float16>>{});
  visitor(Type<DenseLine<bfloat16>>{});
}

template <class Body, class Line>
struct RowKernel {
  Body body;
  template <class Team>
  WEFT_DEVICE void operator()(const Team& team) const {
    body.template run<Line>(team);
  }
};

template <class Line, class Body>
void launch_lines(const Body& body, const RowPlan& plan) {
  const RowKernel<Body, Line> kernel{body};
  if constexpr (Line::kN > 1) {
    if (plan.threads == 32) {
      return launch_teams<32>(kernel, plan.teams, plan.held_bytes, plan.stream);
    }
    if (plan.threads == 512) {
      return launch_teams<512>(kernel, plan.teams, plan.held_bytes, plan.stream);
    }
  }
  launch_teams<128>(kernel, plan.teams, plan.held_bytes, plan.stream);
}

/// Queues `body`: a struct with a member `RowWork work`, which this sets, and `template <class
/// Line, class Team> WEFT_DEVICE void run(const Team&) const`.
template <class Body>
void launch_rows(Body body, const RowPlan& plan) {
  body.work = {plan.count, plan.size, plan.held_bytes > 0};
  visit_lines(plan, [&](auto type) { launch_lines<typename decltype(type)::type>(body, plan); });
}

}  // namespace WEFT_COMPILER
}  // namespace weft::cuda
