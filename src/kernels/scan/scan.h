// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/kernel.h"

namespace weft {

/// out[..., i, ...] = sum of in[..., 0 .. i, ...] along `dim`; `reverse` sums from the end. Starts
/// at `start` (in's shape without `dim`, or with size 1 there) when given. Floats in f64, integers
/// in i64.
WEFT_KERNEL(void, cumulative_sum,
            (const MemoryBlock& out, const MemoryBlock& in, int dim, bool reverse = false,
             const MemoryBlock* start = nullptr),
            (out, in, dim, reverse, start))

/// out[..., i, ...] = product of in[..., 0 .. i, ...] along `dim`. Floats in f64, integers in i64.
WEFT_KERNEL(void, cumulative_product, (const MemoryBlock& out, const MemoryBlock& in, int dim),
            (out, in, dim))

/// Computes the gradient of cumulative_product from the result's `dy`: out[i] is the sum over j >=
/// i of dy[j] times the product of x[0 .. j] without x[i]. Does not divide: x may have zeros.
WEFT_KERNEL(void, cumulative_product_gradient,
            (const MemoryBlock& out, const MemoryBlock& dy, const MemoryBlock& x, int dim),
            (out, dy, x, dim))

/// out[i] = dy times the product along `dim` of all elements of x except x[i]; `dy` has x's shape
/// without `dim`.
WEFT_KERNEL(void, product_gradient,
            (const MemoryBlock& out, const MemoryBlock& dy, const MemoryBlock& x, int dim),
            (out, dy, x, dim))

}  // namespace weft
