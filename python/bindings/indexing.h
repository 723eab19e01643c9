// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "python/bindings/casters.h"

namespace weft::python {

/// x[index]: ints, slices, None and ... in NumPy's sense; a view where memory allows.
Tensor indexed(const Tensor& x, const py::object& index);
/// x[index] = value, which broadcasts. ValueError where x[index] is no view: of a dim that is cut.
void set_indexed(const Tensor& x, const py::object& index, const py::object& value);

}  // namespace weft::python
