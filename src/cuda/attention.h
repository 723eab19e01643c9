// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/matmul/attention_tiles.h"

namespace weft::cuda {

// The computations of src/matmul/attention.h where the blocks lie on a GPU; operands are checked.

void attend(const AttentionSizes& sizes, const Block& q, const Block& k, const Block& v,
            const Block& out, const Block& lse);

void attend_backward(const AttentionSizes& sizes, const AttentionGradients& x);

}  // namespace weft::cuda
