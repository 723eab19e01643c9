// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/instances.h"

#include "weft/tensor.h"

namespace weft::python {

void refuse_object() {
  throw py::type_error(
      "object: __init__ did not run, expected a class that calls super().__init__() first");
}

void check_value(py::handle object) {
  // Bound classes and those derived from them have pybind11's metaclass, others mostly Python's.
  PyTypeObject* kind = Py_TYPE(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())));
  if (kind == &PyType_Type) return;
  static PyTypeObject* const bound = Py_TYPE(py::type::handle_of<Tensor>().ptr());
  if (kind != bound && !PyType_IsSubtype(kind, bound)) return;
  if (!has_value(object)) refuse_object();
}

}  // namespace weft::python
