// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/module_calls.h"

#include <utility>

#include "python/bindings/lock.h"
#include "weft/error.h"

namespace weft::python {

static bool is_plain(py::handle value) {
  return value.is_none() || PyLong_Check(value.ptr()) || PyFloat_Check(value.ptr()) ||
         PyUnicode_Check(value.ptr());
}

Arguments::Argument Arguments::argument_of(py::handle value, const std::string& what) {
  if (auto tensor = tensor_of(value)) {
    tensors_.push_back(*std::move(tensor));
    return tensors_.size() - 1;
  }
  if (is_plain(value)) return py::reinterpret_borrow<py::object>(value);
  throw py::type_error(concat("module: ", what, " is a ", type_of(value),
                              ", expected a weft.Tensor, None, a number or a string",
                              conversion_of(value)));
}

Arguments::Arguments(py::handle forward, const py::args& given, const py::kwargs& named) {
  const py::object signature = py::module_::import("inspect").attr("signature")(forward);
  const py::object bound = signature.attr("bind")(*given, **named);
  for (const py::handle value : py::tuple(bound.attr("args"))) {
    by_position_.push_back(argument_of(value, concat("argument ", by_position_.size())));
  }
  for (const auto& [name, value] : py::dict(bound.attr("kwargs"))) {
    const auto word = name.cast<std::string>();
    by_name_.emplace_back(word, argument_of(value, concat("argument ", word)));
  }
}

py::object Arguments::pass(py::handle forward, const Tensors& tensors) const {
  if (tensors.size() != tensors_.size()) {
    throw py::type_error(concat("module: number of tensors of a hook before forward is ",
                                tensors.size(), ", expected ", tensors_.size(),
                                ", those of the call"));
  }
  const auto object_of_argument = [&](const Argument& argument) {
    const auto* number = std::get_if<size_t>(&argument);
    return number ? py::cast(tensors[*number]) : std::get<py::object>(argument);
  };
  py::tuple given(by_position_.size());
  for (size_t i = 0; i < by_position_.size(); ++i) given[i] = object_of_argument(by_position_[i]);
  py::dict named;
  for (const auto& [name, argument] : by_name_) {
    named[py::str(name)] = object_of_argument(argument);
  }
  return forward(*given, **named);
}

ArgumentsPtr kept_arguments(py::handle forward, const py::args& given, const py::kwargs& named) {
  return {new Arguments(forward, given, named), [](const Arguments* dropped) {
            if (is_ending()) return;
            const Locked lock;
            delete dropped;
          }};
}

std::optional<Tensors> only_tensors(const py::args& given) {
  Tensors tensors;
  for (const py::handle value : given) {
    auto tensor = tensor_of(value);
    if (!tensor) return std::nullopt;
    tensors.push_back(*std::move(tensor));
  }
  return tensors;
}

Tensors run_written(const py::object& self, const py::object& forward,
                    const ArgumentsPtr& arguments, const Tensors& inputs) {
  const std::string what = concat(Py_TYPE(self.ptr())->tp_name, ": forward");
  if (arguments) return tensors_of(what, arguments->pass(forward, inputs));
  return tensors_of(what, forward(*tuple_of(inputs)));
}

}  // namespace weft::python
