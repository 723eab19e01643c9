// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft::cuda {

/// copy when one or both blocks are on a GPU. On one GPU, or from one GPU to another, it is queued
/// on the current stream of out's device. From or to the host it is complete, as seen by the host,
/// on return.
void copy(const Block& out, const Block& in);

/// The same between a GPU and dense pinned host memory, which is read or written when the GPU's
/// current stream reaches the copy. The GPU converts dtypes.
void transfer(const Block& out, const Block& in);

/// GPU versions of fill and fill_range.
void fill(const Block& out, double value);
void fill_range(const Block& out, int dim, double start, double step);

}  // namespace weft::cuda
