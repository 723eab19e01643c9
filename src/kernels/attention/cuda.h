// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/attention/tiles.h"

namespace weft::cuda {

// GPU versions of the computations of src/kernels/attention/attention.h. The caller has checked the
// operands.

void attend(const AttentionSizes& sizes, const Block& q, const Block& k, const Block& v,
            const Block& out, const Block& lse);

void attend_backward(const AttentionSizes& sizes, const AttentionGradients& x);

}  // namespace weft::cuda
