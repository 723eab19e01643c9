// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <variant>

#include "src/kernels/kernel.h"
#include "src/kernels/math/philox.h"
#include "weft/context.h"

namespace weft {

using Distribution = std::variant<Uniform, Normal, Integers>;

/// Fills `out`, slice `box` of a tensor of `shape`, with values drawn from the distribution.
WEFT_KERNEL(void, fill_random,
            (const MemoryBlock& out, const Box& box, const Shape& shape, const RandomState& state,
             const Distribution& distribution),
            (out, box, shape, state, distribution))

/// out = in times the values drawn from `kept`; 0 where these are.
WEFT_KERNEL(void, drop,
            (const MemoryBlock& out, const MemoryBlock& in, const Box& box, const Shape& shape,
             const RandomState& state, const Bernoulli& kept),
            (out, in, box, shape, state, kept))

}  // namespace weft
