// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "python/bindings/casters.h"

namespace weft::python {

/// The one element as a Python number.
py::object item_of(const Tensor& x);

/// All of them as nested lists of Python numbers.
py::object list_of(const Tensor& x);

}  // namespace weft::python
