// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft {

/// y = silu(a) * b, silu(a) = a * sigmoid(a).
void swiglu(const Block& y, const Block& a, const Block& b);

/// Gradients of swiglu in one pass over dy, a and b.
void swiglu_backward(const Block& da, const Block& db, const Block& dy, const Block& a,
                     const Block& b);

}  // namespace weft
