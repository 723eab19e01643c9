// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "python/bindings/casters.h"

namespace weft::python {

/// The name of a type, for messages; with its module for a tensor of another library.
std::string type_of(py::handle value);
/// "; convert it by ..." for a tensor of another library, otherwise "".
const char* conversion_of(py::handle value);

/// Converts number `i` of several objects. Throws TypeError naming `what` and the `kind` of object
/// otherwise: "stack: tensor 1 is a list, ...".
Tensor tensor_from(const std::string& what, const char* kind, size_t i, py::handle value);

/// Converts the result of a Python forward: a tensor, or a sequence of tensors. Throws TypeError
/// naming `what` otherwise.
Tensors tensors_of(const std::string& what, py::handle returned);

/// Returns the tensors as a tuple.
py::tuple tuple_of(const Tensors& tensors);
/// Returns a single tensor as it is, several as a tuple.
py::object one_or_all(Tensors tensors);

}  // namespace weft::python
