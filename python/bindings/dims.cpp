// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/dims.h"

#include "weft/error.h"

namespace weft::python {

int64_t whole_number(const char* what, py::handle given) {
  if (!PyIndex_Check(given.ptr())) {
    throw py::type_error(
        concat(what, ": it is a ", Py_TYPE(given.ptr())->tp_name, ", expected a whole number"));
  }
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(given.ptr()));
  if (!number) throw py::error_already_set();
  int overflow = 0;
  const long long whole = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow == 0) return whole;
  fail(what, ": it is ", py::str(number).cast<std::string>(), ", expected a number of 64 bits");
}

int dim_number(const char* what, py::handle given) {
  const int64_t number = whole_number(what, given);
  if (number == static_cast<int>(number)) return static_cast<int>(number);
  fail(what, ": dim is ", number, ", expected one that a tensor can have");
}

static bool is_list(const py::object& given) {
  return PyTuple_Check(given.ptr()) || PyList_Check(given.ptr());
}

bool is_no_dim(const py::object& axis) { return is_list(axis) && py::len(axis) == 0; }

std::vector<int> named_dims(const py::object& axis) {
  if (!is_list(axis)) return {dim_number("axis", axis)};
  std::vector<int> dims;
  for (const py::handle one : axis) dims.push_back(dim_number("axis", one));
  return dims;
}

std::vector<int> dims_of(const py::object& axis) {
  if (is_no_dim(axis)) fail("axis: number of dims is 0, expected at least 1; None is all of them");
  return axis.is_none() ? std::vector<int>() : named_dims(axis);
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
  if (given.is_none()) fail(what, ": axis is missing, expected a dim");
  return dim_number(what, given);
}

}  // namespace weft::python
