// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/casters.h"

#include "python/bindings/dims.h"
#include "python/bindings/instances.h"
#include "weft/error.h"
#include "weft/module.h"

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

bool load_shape(py::handle object, Shape& shape) {
  shape = {};
  if (PyLong_Check(object.ptr())) {
    shape.push_back(whole_number("shape", object));
    return true;
  }
  if (!PyTuple_Check(object.ptr()) && !PyList_Check(object.ptr())) return false;
  for (const py::handle size : py::reinterpret_borrow<py::sequence>(object)) {
    if (!PyIndex_Check(size.ptr())) return false;
    shape.push_back(whole_number("shape", size));
  }
  return true;
}

std::optional<Tensor> tensor_of(py::handle object) {
  if (const auto* tensor = bound_value<Tensor>(object)) return *tensor;
  if (const auto* parameter = bound_value<Parameter>(object)) return parameter->tensor();
  return std::nullopt;
}

static Number exact_number(py::handle object) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  if (overflow == 0) return number;
  if (overflow > 0) {
    const unsigned long long wide = PyLong_AsUnsignedLongLong(object.ptr());
    if (!PyErr_Occurred()) return wide;
    PyErr_Clear();
  }
  fail("operand: number is ", py::str(object).cast<std::string>(), ", expected one of 64 bits");
}

static py::handle numpy_scalar() {
  static const py::handle type = py::object(py::module_::import("numpy").attr("generic")).release();
  return type;
}

bool load_operand(py::handle object, Operand& operand) {
  if (PyFloat_Check(object.ptr())) {
    operand.number = PyFloat_AS_DOUBLE(object.ptr());
    return true;
  }
  if (PyLong_Check(object.ptr())) {
    const bool is_truth = PyBool_Check(object.ptr());
    operand.number = is_truth ? Number(object.ptr() == Py_True) : exact_number(object);
    return true;
  }
  if (auto found = tensor_of(object)) {
    operand = Operand(*found);
    return true;
  }
  // A number of NumPy's is as weak as one of Python's.
  if (!py::isinstance(object, numpy_scalar())) return false;
  return load_operand(object.attr("item")(), operand);
}

}  // namespace weft::python
