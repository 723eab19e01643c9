// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/adamw/adamw.h"

namespace weft::cuda {

// GPU versions of src/kernels/adamw.h; `grad_factor` and `rates` must be on the GPU too.

void adamw(const Block& parameter, const Block& m, const Block& v, const Block& grad,
           const AdamWNumbers& options, const Block* grad_factor, const Block* rates);

void sgd(const Block& parameter, const Block& velocity, const Block& grad, const Sgd& options,
         const Block* grad_factor);

}  // namespace weft::cuda
