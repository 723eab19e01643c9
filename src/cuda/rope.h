// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/rope.h"

namespace weft::cuda {

/// rope where the blocks lie on a GPU; its arguments have been checked.
void rope(const Block& y, const Block& x, int sequence_dim, const Rope& options);

}  // namespace weft::cuda
