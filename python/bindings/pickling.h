// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace weft::python {

namespace py = pybind11;

/// Makes pickle, and copies that would use it, fail with an error that names the alternative.
template <class Class> void refuse_to_pickle(Class& bound, const char* sentence) {
  bound.def("__reduce_ex__", [sentence](const py::object&, const py::object&) -> py::object {
    throw py::type_error(sentence);
  });
}

/// Makes copies of a handle return the handle: the object behind it exists once.
template <class Class> void copy_as_itself(Class& bound) {
  bound.def("__copy__", [](const py::object& self) { return self; });
  bound.def("__deepcopy__", [](const py::object& self, const py::object&) { return self; });
}

}  // namespace weft::python
