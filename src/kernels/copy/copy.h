// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft {

/// out = in, converted to out's dtype. `in` broadcasts to out's shape; any strides. Conversion to
/// integers truncates; conversion to bool is "is not zero". The memory of the two must not overlap.
void copy(const Block& out, const Block& in);

/// Sets every element to `value`.
void fill(const Block& out, double value);

/// out[..., i, ...] = start + step * i, with i the index along `dim`; integers are computed in i64.
void fill_range(const Block& out, int dim, double start, double step);

/// out += factor * in; `in` broadcasts to out's shape. The halves are added in f32.
void accumulate(const Block& out, const Block& in, double factor = 1);

/// out *= factor.
void scale(const Block& out, double factor);

}  // namespace weft
