// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "python/bindings/casters.h"

namespace weft::python {

/// Implements x[index] for ints, slices, None and ... as in NumPy; returns a view where possible.
Tensor indexed(const Tensor& x, const py::object& index);
/// Implements x[index] = value, with broadcasting. Throws ValueError where x[index] is not a view,
/// as for a sharded dim.
void set_indexed(const Tensor& x, const py::object& index, const py::object& value);

}  // namespace weft::python
