// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/returned_tensors.h"

#include "weft/error.h"

namespace weft::python {

std::string type_of(py::handle value) {
  const std::string name = Py_TYPE(value.ptr())->tp_name;
  if (*conversion_of(value) == 0 || name.find('.') != name.npos) return name;
  return concat(py::str(py::type::handle_of(value).attr("__module__")), ".", name);
}

const char* conversion_of(py::handle value) {
  return py::hasattr(value, "__dlpack__") ? "; convert it by weft.from_dlpack" : "";
}

Tensor tensor_from(const std::string& what, const char* kind, size_t i, py::handle value) {
  if (auto tensor = tensor_of(value)) return *std::move(tensor);
  throw py::type_error(concat(what, ": ", kind, " ", i, " is a ", type_of(value),
                              ", expected a weft.Tensor", conversion_of(value)));
}

Tensors tensors_of(const std::string& what, py::handle returned) {
  if (auto one = tensor_of(returned)) return {*std::move(one)};
  const bool many = PyTuple_Check(returned.ptr()) || PyList_Check(returned.ptr());
  Tensors all;
  if (many) {
    for (const py::handle item : py::reinterpret_borrow<py::sequence>(returned)) {
      all.push_back(tensor_from(what, "result", all.size(), item));
    }
    return all;
  }
  throw py::type_error(
      concat(what, ": it returned a ", Py_TYPE(returned.ptr())->tp_name, ", expected Tensors"));
}

py::tuple tuple_of(const Tensors& tensors) {
  py::tuple all(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) all[i] = tensors[i];
  return all;
}

py::object one_or_all(Tensors tensors) {
  return tensors.size() == 1 ? py::cast(std::move(tensors[0])) : tuple_of(tensors);
}

}  // namespace weft::python
