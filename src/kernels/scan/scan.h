// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/kernel.h"
#include "src/kernels/math/reducers.h"
#include "src/kernels/rows/rows.h"

namespace weft {

/// The kind of a running total: sums, products or log(sum(exp)), for floats.
enum class Running : uint8_t { sum, product, logsumexp };

/// out[..., i, ...] = the total of in[..., 0 .. i, ...] along `dim`; `reverse` begins at the end.
/// Starts at `start` (in's shape without `dim`, or with size 1 there) when given. Floats in f64,
/// integers in i64.
WEFT_KERNEL(void, running_total,
            (Running kind, const MemoryBlock& out, const MemoryBlock& in, int dim,
             bool reverse = false, const MemoryBlock* start = nullptr),
            (kind, out, in, dim, reverse, start))

/// The name of the op, for errors.
constexpr const char* name_of(Running kind) {
  constexpr const char* kNames[] = {"cumulative_sum", "cumulative_product", "cumulative_logsumexp"};
  return kNames[static_cast<size_t>(kind)];
}

/// Calls f(Type<R>{}, Type<C>{}) with the functor and the compute type of a running total.
template <class F> void visit_running(Running kind, DType dtype, const F& f) {
  const auto of_numbers = [&](auto functor) {
    is_floating(dtype) ? f(functor, Type<double>{}) : f(functor, Type<int64_t>{});
  };
  if (kind == Running::logsumexp) return f(Type<LogAddExpOf>{}, Type<double>{});
  kind == Running::sum ? of_numbers(Type<SumOf>{}) : of_numbers(Type<ProductOf>{});
}

/// The values that cumulative_extreme keeps along `dim`: the greatest or the least.
struct ExtremeScan {
  int dim;
  bool greatest;
  /// Added to the indices of elements; or their indices, shaped as the elements, of which negative
  /// ones stand for no element.
  int64_t offset = 0;
  const MemoryBlock* numbers = nullptr;
  /// The extreme before all elements and its index; shaped as in running_total.
  const MemoryBlock *start = nullptr, *start_index = nullptr;
};

/// values[..., i, ...] = the extreme of in[..., 0 .. i, ...], `indices` its index: the last of
/// equal ones. From a NaN on, all are NaN, with the index of the last NaN.
WEFT_KERNEL(void, cumulative_extreme,
            (const MemoryBlock& values, const MemoryBlock& indices, const MemoryBlock& in,
             const ExtremeScan& scan),
            (values, indices, in, scan))

/// The operands of cumulative_extreme as rows, checked.
struct ExtremeRows {
  Rows in, values, indices, numbers, start, start_index;

  ExtremeRows(const MemoryBlock& values_block, const MemoryBlock& indices_block,
              const MemoryBlock& in_block, const ExtremeScan& scan)
      : in(in_block, scan.dim), values(values_block, scan.dim), indices(indices_block, scan.dim) {
    check_rows("cumulative_extreme", in, values);
    check_rows("cumulative_extreme", in, indices);
    if (scan.numbers) numbers = Rows(*scan.numbers, scan.dim);
    if (!scan.start) return;
    start = Rows::values("cumulative_extreme", *scan.start, in);
    start_index = Rows::values("cumulative_extreme", *scan.start_index, in);
  }
};

/// The extreme of the elements so far; none when the index is negative.
template <class C> struct Extreme {
  C value;
  int64_t index;

  WEFT_FN Extreme with(const Extreme& next, bool greatest) const {
    if (next.index < 0) return *this;
    if (index < 0 || next.value != next.value) return next;
    if (value != value) return *this;
    return (greatest ? next.value >= value : next.value <= value) ? next : *this;
  }
};

}  // namespace weft
