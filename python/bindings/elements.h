// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "python/bindings/casters.h"

namespace weft::python {

/// Returns the only element as a Python number.
py::object item_of(const Tensor& x);

/// Returns all elements as nested lists of Python numbers.
py::object list_of(const Tensor& x);

}  // namespace weft::python
