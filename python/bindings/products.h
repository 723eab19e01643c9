// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/tensor.h"

namespace weft::python {

/// `matmul` that takes vectors too, as NumPy's.
Tensor product_of(const Tensor& a, const Tensor& b);

}  // namespace weft::python
