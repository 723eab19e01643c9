// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/tensor.h"

namespace weft::python {

/// `reshape` to a shape of which one size may be -1.
Tensor reshaped(const Tensor& x, Shape shape);

}  // namespace weft::python
