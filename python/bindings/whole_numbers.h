// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

namespace weft::python {

namespace py = pybind11;

/// Converts an int or an equivalent object. Throws TypeError naming `what` for anything else, and
/// ValueError for a number beyond 64 bits.
int64_t whole_number(const char* what, py::handle given);

/// The same for the number of a dim or an axis, which may be negative.
int dim_number(const char* what, py::handle given);

}  // namespace weft::python
