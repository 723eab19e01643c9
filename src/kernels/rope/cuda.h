// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/rope/rope.h"

namespace weft::cuda {

/// GPU version of rope; the caller has checked the arguments.
void rope(const Block& y, const Block& x, int sequence_dim, const Rope& options);

}  // namespace weft::cuda
