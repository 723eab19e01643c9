// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

/// (input - target)^2 element by element, of equal shapes: its mean, its sum, or for `reduction`
/// "none" all of it.
WEFT_API Tensor mse_loss(const Tensor& input, const Tensor& target,
                         std::string_view reduction = "mean");

}  // namespace weft
