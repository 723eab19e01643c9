// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
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

/// Uniform in [low, high), after rounding to the dtype of `out`.
void fill_uniform(const MemoryBlock& out, const Box& box, const Shape& shape,
                  const RandomState& state, double low, double high);

/// Integers in [low, high); std::invalid_argument when these are more than 2^32 values.
void fill_integers(const MemoryBlock& out, const Box& box, const Shape& shape,
                   const RandomState& state, int64_t low, int64_t high);

/// Normal, by the Box-Muller transform of words (0, 1) and (2, 3).
void fill_normal(const MemoryBlock& out, const Box& box, const Shape& shape,
                 const RandomState& state, double mean, double stddev);

/// out = in / (1 - p) with probability 1 - p, else 0: computes dropout and its gradient. `in` may
/// be `out`.
void dropout(const MemoryBlock& out, const MemoryBlock& in, const Box& box, const Shape& shape,
             const RandomState& state, double p);

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
