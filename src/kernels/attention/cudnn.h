// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/attention/call.h"

namespace weft::cuda {

// Attention by cuDNN's fused kernels, on the current stream. Returns false, with nothing queued,
// when cuDNN is missing or does not support the call.

bool attend_by_cudnn(const AttentionSizes& sizes, const MemoryBlock& q, const MemoryBlock& k,
                     const MemoryBlock& v, const MemoryBlock& out, const MemoryBlock& lse);

/// The bits of the gradients are equal in every run.
bool attend_backward_by_cudnn(const AttentionSizes& sizes, const AttentionGradients& x);

}  // namespace weft::cuda
