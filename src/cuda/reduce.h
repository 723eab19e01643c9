// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/reduce.h"

namespace weft::cuda {

// Functions of src/kernels/reduce.h where the blocks lie on a GPU. How the elements are cut follows
// from the shape alone, so that bits do not depend on the run.

void reduce(Reduction reduction, const Block& out, const Block& in, const Dims& dims, double factor,
            bool accumulate);

}  // namespace weft::cuda
