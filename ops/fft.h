// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/tensor.h"

namespace weft {

/// scale times the transform of a complex tensor along a dim.
Tensor complex_transform(const Tensor& a, int dim, bool inverse, double scale);
/// scale times the first n / 2 + 1 frequencies of a real tensor.
Tensor real_transform(const Tensor& a, int dim, double scale);
/// scale times the inverse of that for length n.
Tensor half_transform(const Tensor& a, int dim, int64_t n, double scale);

}  // namespace weft
