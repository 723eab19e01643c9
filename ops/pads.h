// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ops/engine/tensor_body.h"

namespace weft {

/// Puts `a` into zeros: for each dim, the number of zeros before it and the size of the result.
Tensor pad_dims(const Tensor& a, const std::vector<int64_t>& before_and_size);

}  // namespace weft
