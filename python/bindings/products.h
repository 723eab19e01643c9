// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/tensor.h"

namespace weft::python {

/// `matmul` that also accepts vectors, as NumPy's does.
Tensor product_of(const Tensor& a, const Tensor& b);

}  // namespace weft::python
