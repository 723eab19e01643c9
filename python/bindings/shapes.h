// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/tensor.h"

namespace weft::python {

/// Reshapes to a shape in which one size may be -1.
Tensor reshaped(const Tensor& x, Shape shape);

}  // namespace weft::python
