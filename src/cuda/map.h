// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/map.h"

namespace weft::cuda {

/// run_map where the blocks lie on a GPU.
void run_map(const char* what, const MapLoops& loops, const void* functor, const Block* const* outs,
             int results, const Block* const* ins, int operands);

}  // namespace weft::cuda
