// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "python/bindings/casters.h"

namespace weft::python {

/// What a forward of Python returned: a tensor, or a sequence of them. TypeError names `what`
/// otherwise.
Tensors tensors_of(const std::string& what, py::handle returned);

/// One tensor alone, several as a tuple.
py::object one_or_all(Tensors tensors);

}  // namespace weft::python
