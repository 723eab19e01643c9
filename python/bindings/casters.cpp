// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/casters.h"

#include "weft/error.h"
#include "weft/module.h"

namespace weft::python {

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
  if (PyComplex_CheckExact(object.ptr())) {
    operand.number = std::complex<double>(PyComplex_RealAsDouble(object.ptr()),
                                          PyComplex_ImagAsDouble(object.ptr()));
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

size_t number_among(const char* what, const char* field, const std::string& name,
                    const std::vector<const char*>& names) {
  std::string expected;
  for (size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) return i;
    expected += concat(i == 0 ? "" : i + 1 < names.size() ? ", " : " or ", names[i]);
  }
  fail(what, ": ", field, " is ", in_quotes(name), ", expected ", expected);
}

int64_t whole_number(const char* what, py::handle given) {
  if (!PyIndex_Check(given.ptr())) {
    fail_type(what, ": it is a ", type_of(given), ", expected a whole number");
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

std::vector<int> dims_of(const std::optional<DimList>& axis) {
  if (is_no_dim(axis)) fail("axis: number of dims is 0, expected at least 1; None is all of them");
  return axis.value_or(DimList());
}

Shape sizes_one_by_one(const char* what, const py::args& given) {
  const bool is_one = given.size() == 1 && !PyIndex_Check(given[0].ptr());
  const py::object sizes = is_one ? given[0] : py::object(given);
  Shape shape;
  if (load_shape(sizes, shape)) return shape;
  const auto described = py::module_::import("weft._arguments").attr("described");
  fail_type(what, ": shape is ", described(sizes), ", expected tuple[int, ...]");
}

std::vector<int> dims_one_by_one(const char* what, const py::args& given) {
  const bool is_one = given.size() == 1 && py::isinstance<py::sequence>(given[0]);
  const py::sequence dims = is_one ? py::sequence(given[0]) : py::sequence(given);
  std::vector<int> all;
  // Elements of a sequence may be new objects.
  for (const py::object dim : dims) all.push_back(dim_number(what, dim));
  return all;
}

std::string type_of(py::handle value) {
  const std::string name = Py_TYPE(value.ptr())->tp_name;
  if (*conversion_of(value) == 0 || name.find('.') != name.npos) return name;
  return concat(py::str(py::type::handle_of(value).attr("__module__")), ".", name);
}

const char* conversion_of(py::handle value) {
  return py::hasattr(value, "__dlpack__") ? "; convert it by weft.from_dlpack" : "";
}

Tensors tensors_in(const std::string& what, const py::tuple& given, const char* kind) {
  Tensors all;
  for (const py::handle one : given) {
    auto tensor = tensor_of(one);
    if (!tensor) {
      fail_type(what, ": ", kind, " ", all.size(), " is a ", type_of(one),
                ", expected a weft.Tensor", conversion_of(one));
    }
    all.push_back(*std::move(tensor));
  }
  return all;
}

Tensors tensors_of(const std::string& what, py::handle returned) {
  if (auto one = tensor_of(returned)) return {*std::move(one)};
  if (PyTuple_Check(returned.ptr()) || PyList_Check(returned.ptr())) {
    return tensors_in(what, py::tuple(py::reinterpret_borrow<py::object>(returned)), "result");
  }
  fail_type(what, ": it returned a ", type_of(returned), ", expected Tensors");
}

py::tuple for_python(const Tensors& tensors) { return py::tuple(py::cast(tensors)); }

py::object one_or_all(Tensors tensors) {
  return tensors.size() == 1 ? py::cast(std::move(tensors[0])) : for_python(tensors);
}

}  // namespace weft::python
