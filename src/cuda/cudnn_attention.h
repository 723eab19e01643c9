// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/matmul/attention_tiles.h"

namespace weft::cuda {

// Attention by cuDNN's fused kernels, on the current stream: false, and nothing is queued, where
// cuDNN is not there or does not do it.

bool attend_by_cudnn(const AttentionSizes& sizes, const Block& q, const Block& k, const Block& v,
                     const Block& out, const Block& lse);

/// The gradients' bits do not depend on the run.
bool attend_backward_by_cudnn(const AttentionSizes& sizes, const AttentionGradients& x);

}  // namespace weft::cuda
