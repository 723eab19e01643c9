// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef __CUDACC__
// A kernel's call of its walk is a call of host functions on the CPU, of device functions on a GPU.
#pragma nv_diag_suppress 20011, 20012, 20014
#endif

#include <algorithm>
#include <vector>

#include "src/base/parallel.h"
#include "src/device/cuda/runtime.h"
#include "src/kernels/map/map.h"
#include "src/kernels/rows/row_functors.h"
#include "src/kernels/rows/rows.h"

#ifdef WEFT_COMPILES_KERNELS
#include "src/kernels/rows/device_rows.h"
#endif

namespace weft {

// A kernel over rows is written once for both devices. It is a trivially copyable struct with
//   template <class Walk> WEFT_FN void operator()(const Walk& walk) const
// that handles rows walk.begin(), walk.begin() + walk.step(), ... before walk.end(). A HostWalk is
// a range of rows for one CPU thread; a DeviceWalk (device_rows.h), the rows of a thread block.
// Both have reader, held_reader, writer, vector, reduce, map, clear and set (once per row);
// the size of a row is that of the kernel's Rows. `reduce` is a barrier: all threads of a block
// must reach it. A kernel that declares `static constexpr bool kReadsBf16 = true` gets rows of bf16
// without conversion buffers on the CPU: what it wrote must not be read again, because it is bf16.

inline namespace WEFT_COMPILER {

/// Rows of bf16 with unit stride, where they are: a reader and a writer of a HostWalk.
class Bf16Rows {
 public:
  explicit Bf16Rows(const Rows& rows) : rows_(rows) {}
  bfloat16* operator()(int64_t row) const { return static_cast<bfloat16*>(rows_.line(row).data); }
  bfloat16* begin(int64_t row) const { return (*this)(row); }
  void end() const {}

 private:
  const Rows& rows_;
};

/// With Stored = bfloat16 rows are read and written in place, computed as T.
template <class T, class Stored = T> class HostWalk {
 public:
  using C = T;
  static constexpr bool kInPlace = !std::is_same_v<C, Stored>;
  HostWalk(int64_t begin, int64_t end, int64_t size) : begin_(begin), end_(end), size_(size) {}

  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  static constexpr int64_t step() { return 1; }
  int64_t size() const { return size_; }
  auto reader(const Rows& rows) const {
    if constexpr (kInPlace)
      return Bf16Rows(rows);
    else
      return RowReader<C>(rows, end_);
  }
  /// Used for rows that several passes read.
  auto held_reader(const Rows& rows, int) const { return reader(rows); }
  auto writer(const Rows& rows) const {
    if constexpr (kInPlace)
      return Bf16Rows(rows);
    else
      return RowWriter<C>(rows, end_);
  }
  /// A vector read along with every row; `absent` when it has no data.
  std::vector<C> vector(const Rows& values, C absent) const {
    std::vector<C> dense(static_cast<size_t>(size_), absent);
    if (values.data()) load_line(dense.data(), values.line(0), size_);
    return dense;
  }

  /// Combines the reducer elements f(rows...) of one row.
  template <class R, class F, class... In> C reduce(const F& f, const In&... rows) const {
    return reduce_row<R, C>(size_, f, elements(rows)...);
  }
  /// Row `row` of out = f(rows...); out may be one of the rows.
  template <class F, class Writer, class... In>
  void map(const F& f, Writer& out, int64_t row, const In&... rows) const {
    map_row<C>(size_, f, out.begin(row), elements(rows)...);
    out.end();
  }
  template <class Writer> void clear(Writer& out, int64_t row) const {
    std::fill_n(out.begin(row), size_, Stored(C(0)));
    out.end();
  }
  static void set(const Rows& values, int64_t row, C value) { set_value(values, row, value); }

 private:
  static const Stored* elements(const Stored* row) { return row; }
  static const C* elements(const std::vector<C>& values) { return values.data(); }

  int64_t begin_, end_, size_;
};

/// Calls f(Type<Walk>{}) with the HostWalk for `all` rows of a kernel: without conversion buffers
/// if `kReadsBf16` is set and all are bf16 with unit stride.
template <bool kReadsBf16, class F>
void visit_host_walk(const char* what, std::initializer_list<const Rows*> all, const F& f) {
  if constexpr (kReadsBf16) {
    const bool in_place = std::ranges::all_of(
        all, [](const Rows* rows) { return rows->dtype() == DType::bf16 && rows->stride() == 1; });
    if (in_place) return f(Type<HostWalk<float, bfloat16>>());
  }
  visit_compute_floating(what, (*all.begin())->dtype(),
                         [&]<class C>(Type<C>) { f(Type<HostWalk<C>>()); });
}

/// Runs a kernel over rows on `device`. std::invalid_argument "what: ..." for integers, and when
/// the operands' rows differ in number or size.
template <class Kernel>
void run_rows(const char* what, [[maybe_unused]] Device device, const Kernel& kernel,
              const RowOperands& operands) {
  const Rows& first = **operands.rows.begin();
  for (const Rows* rows : operands.rows) {
    if (rows->data()) check_rows(what, first, *rows);
  }
#ifdef WEFT_COMPILES_KERNELS
  if (device.kind == DeviceKind::cuda) {
    return cuda::launch_rows(kernel,
                             cuda::plan_rows(what, device, first.count(), first.size(), operands));
  }
#else
  check_runs_on_cpu(what, device);
#endif
  constexpr bool kReadsBf16 = requires { Kernel::kReadsBf16; };
  visit_host_walk<kReadsBf16>(what, operands.rows, [&]<class Walk>(Type<Walk>) {
    parallel_for(first.count(), grain_of(first.size()),
                 [&](int64_t begin, int64_t end) { kernel(Walk(begin, end, first.size())); });
  });
}

/// The same for a kernel that reads single values of `rows`, with begin, end, step and set of a
/// walk alone: a CUDA thread per row, one thread on the CPU.
template <class Kernel>
void run_row_values(const char* what, [[maybe_unused]] Device device, const Kernel& kernel,
                    const Rows& rows) {
#ifndef WEFT_COMPILES_KERNELS
  check_runs_on_cpu(what, device);
#endif
  visit_compute_floating(what, rows.dtype(), [&]<class C>(Type<C>) {
#ifdef WEFT_COMPILES_KERNELS
    if (device.kind == DeviceKind::cuda) {
      return cuda::launch(cuda::RowValuesKernel<Kernel, C>{kernel, rows.count()}, rows.count(),
                          current_stream(device));
    }
#endif
    kernel(HostWalk<C>(0, rows.count(), rows.size()));
  });
}

}  // namespace WEFT_COMPILER
}  // namespace weft
