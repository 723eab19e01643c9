// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/dims.h"

#include "weft/error.h"

namespace weft::python {

static const py::object& given_of(const py::object& axis, const py::object& dim) {
  if (!axis.is_none() && !dim.is_none()) fail("axis and dim are two words for one thing; give one");
  return axis.is_none() ? dim : axis;
}

std::vector<int> dims_of(const py::object& axis, const py::object& dim) {
  const py::object& given = given_of(axis, dim);
  if (given.is_none()) return {};
  if (PyLong_Check(given.ptr())) return {given.cast<int>()};
  auto dims = given.cast<std::vector<int>>();
  if (dims.empty()) fail("axis: () is no dim; leave it out for all of them");
  return dims;
}

int one_dim_of(const char* what, const py::object& axis, const py::object& dim) {
  const py::object& given = given_of(axis, dim);
  if (given.is_none()) fail(what, ": which axis?");
  return given.cast<int>();
}

}  // namespace weft::python
