// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "python/bindings/casters.h"

namespace weft::python {

/// Converts an int or an equivalent object. Throws TypeError naming `what` for anything else, and
/// ValueError for a number beyond 64 bits.
int64_t whole_number(const char* what, py::handle given);

/// The same for the number of a dim or an axis, which may be negative.
int dim_number(const char* what, py::handle given);
/// Dims of a tensor: None is all of them, an int one.
std::vector<int> dims_of(const py::object& axis);
/// Whether it names no dim: () or [].
bool is_no_dim(const py::object& axis);
/// Dims that `axis` names, none for ().
std::vector<int> named_dims(const py::object& axis);
/// The same where it must be one.
int one_dim_of(const char* what, const py::object& axis);
/// Ints one by one, or in a sequence.
std::vector<int> dims_one_by_one(const char* what, const py::args& given);

}  // namespace weft::python
