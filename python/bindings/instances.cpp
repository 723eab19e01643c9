// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/instances.h"

#include "weft/tensor.h"

namespace weft::python {

void refuse_object() {
  py::set_error(
      PyExc_TypeError,
      "object: __init__ did not run, expected a class that calls super().__init__() first");
  throw py::error_already_set();
}

void check_value_of_class(py::handle object) {
  PyTypeObject* kind = Py_TYPE(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())));
  static PyTypeObject* const bound = Py_TYPE(py::type::handle_of<Tensor>().ptr());
  if (kind != bound && !PyType_IsSubtype(kind, bound)) return;
  if (!has_value(object)) refuse_object();
}

}  // namespace weft::python
