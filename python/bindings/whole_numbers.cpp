// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/whole_numbers.h"

#include <string>

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

}  // namespace weft::python
