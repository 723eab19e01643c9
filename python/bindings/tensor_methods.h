// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "python/bindings/casters.h"

namespace weft::python {

/// `reshape` to a shape of which one size may be -1.
Tensor reshaped(const Tensor& x, Shape shape);

/// `matmul` that takes vectors too, as NumPy's.
Tensor product_of(const Tensor& a, const Tensor& b);

/// x[index]: ints, slices, None and ... in NumPy's sense; a view where memory allows.
Tensor indexed(const Tensor& x, const py::object& index);
/// x[index] = value, which broadcasts. ValueError where x[index] is no view: of a dim that is cut.
void set_indexed(const Tensor& x, const py::object& index, const py::object& value);

/// The elements as a Python number, or nested lists of them.
py::object item_of(const Tensor& x);

}  // namespace weft::python
