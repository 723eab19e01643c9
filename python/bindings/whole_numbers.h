// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

namespace weft::python {

namespace py = pybind11;

/// An int, or what stands for one. TypeError names `what` for anything else, ValueError for a
/// number beyond 64 bits.
int64_t whole_number(const char* what, py::handle given);

/// The same for the number of a dim or an axis, which may count from the end.
int dim_number(const char* what, py::handle given);

}  // namespace weft::python
