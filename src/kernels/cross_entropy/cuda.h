// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/cross_entropy/cross_entropy.h"

namespace weft::cuda {

// GPU versions of the functions of src/kernels/cross_entropy.h.

void pick(const Block& picked, const Block& logits, const Block& ids, int64_t offset);
void cross_entropy(const Block& loss, const Block& logits, const Block& ids, int64_t ignored);
void cross_entropy_backward(const Block& dlogits, const Block& dloss, const Block& logits,
                            const Block& ids, int64_t offset, int64_t ignored, const Block* max,
                            const Block* sum);
void count_kept(const Block& out, const Block& ids, int64_t ignored);

}  // namespace weft::cuda
