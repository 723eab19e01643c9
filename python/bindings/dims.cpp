// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/dims.h"

#include "python/bindings/whole_numbers.h"
#include "weft/error.h"

namespace weft::python {

static const py::object& given_of(const py::object& axis, const py::object& dim) {
  if (!axis.is_none() && !dim.is_none()) fail("axis and dim are two words for one thing; give one");
  return axis.is_none() ? dim : axis;
}

std::vector<int> dims_of(const py::object& axis, const py::object& dim) {
  const py::object& given = given_of(axis, dim);
  if (given.is_none()) return {};
  if (!PyTuple_Check(given.ptr()) && !PyList_Check(given.ptr())) {
    return {dim_number("axis", given)};
  }
  std::vector<int> dims;
  for (const py::handle one : given) dims.push_back(dim_number("axis", one));
  if (dims.empty()) fail("axis: () is no dim; leave it out for all of them");
  return dims;
}

int one_dim_of(const char* what, const py::object& axis, const py::object& dim) {
  const py::object& given = given_of(axis, dim);
  if (given.is_none()) fail(what, ": which axis?");
  return dim_number(what, given);
}

}  // namespace weft::python
