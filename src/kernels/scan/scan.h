// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/kernel.h"
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

/// The operands of cumulative_product_gradient as rows, checked; `before` and `behind` have no data
/// when they are not given.
struct ProductGradientRows {
  Rows out, dy, x, before, behind;
  ProductGradientRows(const MemoryBlock& out_block, const MemoryBlock& dy_block,
                      const MemoryBlock& x_block, int dim, const MemoryBlock* before_block,
                      const MemoryBlock* behind_block)
      : out(out_block, dim), dy(dy_block, dim), x(x_block, dim) {
    constexpr const char* kName = "cumulative_product_gradient";
    check_rows(kName, x, out);
    check_rows(kName, x, dy);
    if (before_block) before = Rows::values(kName, *before_block, x);
    if (behind_block) behind = Rows::values(kName, *behind_block, x);
  }
};

/// Computes the gradient of running products from the result's `dy`: out[i] is the sum over j >=
/// i of dy[j] times the product of x[0 .. j] without x[i]. Does not divide: x may have zeros. When
/// `x` is a part of a row, `before` is the product of the elements before it, and `behind` is
/// out[first] * x[first] of the elements behind it as if none were before them.
WEFT_KERNEL(void, cumulative_product_gradient,
            (const MemoryBlock& out, const MemoryBlock& dy, const MemoryBlock& x, int dim,
             const MemoryBlock* before = nullptr, const MemoryBlock* behind = nullptr),
            (out, dy, x, dim, before, behind))

/// out[i] = dy times the product along `dim` of all elements of x except x[i]; `dy` has x's shape
/// without `dim`.
WEFT_KERNEL(void, product_gradient,
            (const MemoryBlock& out, const MemoryBlock& dy, const MemoryBlock& x, int dim),
            (out, dy, x, dim))

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
