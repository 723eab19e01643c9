// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <variant>

#include "src/kernels/kernel.h"
#include "src/kernels/math/philox.h"
#include "weft/block.h"
#include "weft/context.h"

namespace weft {

// Element e of a tensor (its row-major index in the whole tensor) uses word e % 4 of Philox 4x32-10
// with key `seed` and counter (e / 4, stream). Each function fills `out`, which holds slice `box`
// of a tensor of `shape`, with the same bits as that slice of the whole tensor, on any mesh and
// device. f64 gets the values of f32.

using Distribution = std::variant<Uniform, Normal, Integers>;

/// Fills `out` with values drawn from the distribution.
WEFT_KERNEL(void, fill_random,
            (const MemoryBlock& out, const Box& box, const Shape& shape, const RandomState& state,
             const Distribution& distribution),
            (out, box, shape, state, distribution))

/// out = in / (1 - p) with probability 1 - p, else 0: computes dropout and its gradient. `in` may
/// be `out`.
WEFT_KERNEL(void, dropout,
            (const MemoryBlock& out, const MemoryBlock& in, const Box& box, const Shape& shape,
             const RandomState& state, double p),
            (out, in, box, shape, state, p))

/// Throws std::invalid_argument unless `block` has the shape of `box`, a slice of `shape`.
void check_box(const MemoryBlock& block, const Box& box, const Shape& shape);

}  // namespace weft
