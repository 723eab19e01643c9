// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft::cuda {

/// copy where one of the blocks, or both, lie on a GPU. On one, or from one GPU to another, it is
/// queued on the current stream of out's device; from or to the host it has been done when it
/// returns, as far as the host can see.
void copy(const Block& out, const Block& in);

/// The same between a GPU and dense pinned memory of the host, which is read or written when the
/// current stream of the GPU comes to it. The conversion is the GPU's.
void transfer(const Block& out, const Block& in);

/// fill and fill_range where the block lies on a GPU.
void fill(const Block& out, double value);
void fill_range(const Block& out, int dim, double start, double step);

}  // namespace weft::cuda
