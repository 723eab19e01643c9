// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/device/cuda/runtime.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/rows/device_lines.h"

namespace weft::cuda {

// Kernels over rows: a thread block processes a row, and its threads stride over the row's chunks.
// Data that several passes read is kept in shared memory. Each thread rereads only its own chunks,
// so no barrier is needed between passes.

/// The way in which a kernel processes its rows.
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
  int64_t blocks;
  Stream stream;
};

/// Plans a kernel over `count` rows of `size`. std::invalid_argument "what: ..." for integers.
RowPlan plan_rows(const char* what, Device device, int64_t count, int64_t size,
                  const RowOperands& operands);

inline namespace WEFT_COMPILER {

template <class R, class C, class F, class Values, class... More>
WEFT_DEVICE void combine_chunk(C& value, const F& f, const Values& first, const More&... more) {
  for (size_t i = 0; i < std::size(first.element); ++i) {
    value = R::combine(value, R::element(f(first.element[i], more.element[i]...)));
  }
}

template <class F, class Values, class... More>
WEFT_DEVICE Values map_chunk(const F& f, const Values& first, const More&... more) {
  Values result;
  for (size_t i = 0; i < std::size(first.element); ++i) {
    result.element[i] = f(first.element[i], more.element[i]...);
  }
  return result;
}

/// The rows of a kernel, as a thread block sees them: it strides over them.
template <class RowLine, class ThreadBlock> struct DeviceWalk {
  using Line = RowLine;
  using C = typename Line::C;
  using Values = typename Line::Values;
  using Held = typename Line::Held;

  const ThreadBlock& block;
  /// The number of rows, and the size of each.
  int64_t count, size;
  bool holds;

  WEFT_DEVICE int64_t begin() const { return block.index(); }
  WEFT_DEVICE int64_t end() const { return count; }
  WEFT_DEVICE int64_t step() const { return block.blocks(); }
  WEFT_DEVICE int64_t chunks() const { return size / Line::kN; }
  /// Returns the shared memory of held row `i`; null when the rows do not fit.
  WEFT_DEVICE Held* held(int i) const {
    return holds ? block.template shared<Held>() + i * chunks() : nullptr;
  }

  /// Reads `rows`. The i-th that several passes read is kept in shared memory.
  struct Reader {
    const Rows& rows;
    Held* held;
    WEFT_DEVICE HeldLine<Line> operator()(int64_t row) const { return {rows, row, held}; }
  };
  WEFT_DEVICE Reader reader(const Rows& rows) const { return {rows, nullptr}; }
  WEFT_DEVICE Reader held_reader(const Rows& rows, int i) const { return {rows, held(i)}; }
  WEFT_DEVICE const Rows& writer(const Rows& rows) const { return rows; }
  /// A vector read along with every row; `absent` when it has no data.
  WEFT_DEVICE VectorLine<Line> vector(const Rows& values, C absent) const {
    return {values, absent};
  }

  /// Combines the reducer elements f(lines...) over a row.
  template <class R, class F, class... Lines>
  WEFT_DEVICE C reduce(const F& f, Lines&... lines) const {
    C value = R::template identity<C>();
    const int64_t all = chunks();
    for (int64_t c = block.thread(); c < all; c += block.threads()) {
      combine_chunk<R>(value, f, lines.read(c)...);
    }
    (lines.keep(), ...);
    return block.template reduce<R>(value);
  }
  /// Row `row` of out = f(lines...); out may be one of the lines.
  template <class F, class... Lines>
  WEFT_DEVICE void map(const F& f, const Rows& out, int64_t row, Lines&... lines) const {
    const Line to(out, row);
    for (int64_t c = block.thread(); c < chunks(); c += block.threads()) {
      to.write(c, map_chunk(f, lines.read(c)...));
    }
  }
  WEFT_DEVICE void clear(const Rows& out, int64_t row) const {
    const Line to(out, row);
    for (int64_t c = block.thread(); c < chunks(); c += block.threads()) to.write(c, {});
  }
  WEFT_DEVICE void set(const Rows& values, int64_t row, C value) const {
    if (block.thread() == 0) set_value(values, row, value);
  }
};

/// Calls visitor(Type<Line>{}) with the Line that reads the plan's rows.
template <class Visitor> void visit_lines(const RowPlan& plan, Visitor&& visitor) {
  if (!plan.dense) {
    if (plan.dtype == DType::f64) return visitor(Type<AnyLine<double>>{});
    return visitor(Type<AnyLine<float>>{});
  }
  if (plan.dtype == DType::f32) return visitor(Type<DenseLine<float>>{});
  if (plan.dtype == DType::f16) return visitor(Type<DenseLine<float16>>{});
  visitor(Type<DenseLine<bfloat16>>{});
}

/// The rows of a kernel that reads single values of them, as one thread sees them.
template <class T> struct ThreadWalk {
  using C = T;
  const Thread& thread;
  int64_t count;

  WEFT_DEVICE int64_t begin() const { return thread.index; }
  WEFT_DEVICE int64_t end() const { return count; }
  WEFT_DEVICE int64_t step() const { return thread.count; }
  WEFT_DEVICE static void set(const Rows& values, int64_t row, C value) {
    set_value(values, row, value);
  }
};

template <class Kernel, class C> struct RowValuesKernel {
  Kernel kernel;
  int64_t count;

  WEFT_DEVICE void operator()(const Thread& thread) const { kernel(ThreadWalk<C>{thread, count}); }
};

template <class Kernel, class Line> struct RowKernel {
  Kernel kernel;
  int64_t count, size;
  bool holds;

  template <class ThreadBlock> WEFT_DEVICE void operator()(const ThreadBlock& block) const {
    kernel(DeviceWalk<Line, ThreadBlock>{block, count, size, holds});
  }
};

template <class Line, class Kernel> void launch_lines(const Kernel& of_rows, const RowPlan& plan) {
  const RowKernel<Kernel, Line> kernel{of_rows, plan.count, plan.size, plan.held_bytes > 0};
  if constexpr (Line::kN > 1) {
    if (plan.threads == 32) {
      return launch_blocks<32>(kernel, plan.blocks, plan.held_bytes, plan.stream);
    }
    if (plan.threads == 512) {
      return launch_blocks<512>(kernel, plan.blocks, plan.held_bytes, plan.stream);
    }
  }
  launch_blocks<128>(kernel, plan.blocks, plan.held_bytes, plan.stream);
}

/// Queues a kernel over rows (row_kernel.h).
template <class Kernel> void launch_rows(const Kernel& kernel, const RowPlan& plan) {
  visit_lines(plan, [&](auto type) { launch_lines<typename decltype(type)::type>(kernel, plan); });
}

}  // namespace WEFT_COMPILER
}  // namespace weft::cuda
