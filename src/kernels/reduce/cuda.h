// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/reduce/reduce.h"

namespace weft::cuda {

// GPU versions of the functions of src/kernels/reduce.h. Reductions are split depending on the
// shape alone, so bits are equal in every run.

void reduce(Reduction reduction, const Block& out, const Block& in, const Dims& dims, double factor,
            bool accumulate);

}  // namespace weft::cuda
