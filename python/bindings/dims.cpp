// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/dims.h"

#include "python/bindings/whole_numbers.h"
#include "weft/error.h"

namespace weft::python {

std::vector<int> dims_of(const py::object& given) {
  if (given.is_none()) return {};
  if (!PyTuple_Check(given.ptr()) && !PyList_Check(given.ptr())) {
    return {dim_number("axis", given)};
  }
  std::vector<int> dims;
  for (const py::handle one : given) dims.push_back(dim_number("axis", one));
  if (dims.empty()) fail("axis: () is no dim; leave it out for all of them");
  return dims;
}

std::vector<int> dims_one_by_one(const char* what, const py::args& given) {
  const bool is_one = given.size() == 1 && py::isinstance<py::sequence>(given[0]);
  const py::sequence dims = is_one ? py::sequence(given[0]) : py::sequence(given);
  std::vector<int> all;
  // Elements of a sequence may be new objects.
  for (const py::object dim : dims) all.push_back(dim_number(what, dim));
  return all;
}

int one_dim_of(const char* what, const py::object& given) {
  if (given.is_none()) fail(what, ": which axis?");
  return dim_number(what, given);
}

}  // namespace weft::python
