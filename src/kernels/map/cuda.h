// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/map/map.h"

namespace weft::cuda {

/// GPU version of run_map.
void run_map(const char* what, const MapLoops& loops, const void* functor, const Block* const* outs,
             int results, const Block* const* ins, int operands);

}  // namespace weft::cuda
