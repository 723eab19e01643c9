// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "python/bindings/casters.h"

namespace weft::python {

/// Dims of a tensor by one of the two words for them, `axis` (NumPy's) and `dim` (PyTorch's): None
/// is all of them, an int one. ValueError when both are given.
std::vector<int> dims_of(const py::object& axis, const py::object& dim);
/// The same where it must be one.
int one_dim_of(const char* what, const py::object& axis, const py::object& dim);
/// `keepdims` (NumPy's) or `keepdim` (PyTorch's).
inline bool keeps(bool keepdims, bool keepdim) { return keepdims || keepdim; }

}  // namespace weft::python
