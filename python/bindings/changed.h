// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "python/bindings/casters.h"
#include "python/bindings/instances.h"
#include "python/bindings/lock.h"
#include "weft/error.h"
#include "weft/module.h"

namespace weft::python {

/// Returns the tensor that an op changes in place: the tensor itself, or the value at rest of a
/// Parameter.
inline Tensor changeable(py::handle object) {
  if (const auto* given = bound_value<Parameter>(object)) {
    if (given->is_materialized()) return given->value();
    fail("in place: the parameter ", given->shape(), " has no memory, expected one that has; call ",
         "materialize() of its module first");
  }
  if (auto tensor = tensor_of(object)) return *std::move(tensor);
  throw py::type_error(
      concat("in place: a ", Py_TYPE(object.ptr())->tp_name, " is changed, expected a Tensor"));
}

/// Runs change(tensor) and returns the object itself: `a += 1` leaves the name to the same object.
template <class Change> py::object changed(const py::object& self, const Change& change) {
  const Tensor tensor = changeable(self);
  released([&] { change(tensor); });
  return self;
}

/// Binds a function that changes the elements of a tensor, in a module or as a method; returns the
/// object.
template <class Bound, class Result, class... Args, class... Extra>
void bind_change(Bound& bound, const char* name, Result (*function)(const Tensor&, Args...),
                 const char* text, const Extra&... extra) {
  const auto change = [function](const py::object& x, Args... args) {
    return changed(x, [&](const Tensor& to) { function(to, args...); });
  };
  if constexpr (std::is_same_v<Bound, py::module_>) {
    bound.def(name, change, py::arg("x"), extra..., text);
  } else {
    bound.def(name, change, extra..., text);
  }
}

}  // namespace weft::python
