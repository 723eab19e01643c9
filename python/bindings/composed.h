// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "python/bindings/casters.h"
#include "python/bindings/lock.h"
#include "weft/error.h"
#include "weft/module.h"
#include "weft/number.h"
#include "weft/ops/selection.h"
#include "weft/ops/special.h"
#include "weft/ops/statistics.h"

// The one mechanism that binds compositions: a line each, with the function, its arguments and its
// text. Numbers, operands, lists and pairs convert by their types.

namespace weft::python {

/// Adds a type of named tuples to the module, for results with "fields".
py::object add_named_tuple(py::module_& m, const char* name, const char* fields, const char* text);

/// The named tuple of a function's results, of a type that the module has by that name.
py::object named_tuple(const char* name, std::initializer_list<Tensor> results);

/// The result of a function, for Python.
template <class Result> auto for_python(Result result) {
  if constexpr (std::is_same_v<Result, Tensors>) {
    return py::tuple(py::cast(std::move(result)));
  } else if constexpr (std::is_same_v<Result, ValuesAndIndices>) {
    return named_tuple("ValuesAndIndices", {result.values, result.indices});
  } else if constexpr (std::is_same_v<Result, FractionAndExponent>) {
    return named_tuple("FractionAndExponent", {result.mantissa, result.exponent});
  } else if constexpr (std::is_same_v<Result, UniqueConsecutive>) {
    return py::make_tuple(result.values, result.inverse, result.counts);
  } else {
    return result;
  }
}

/// Binds `function`, which runs without the interpreter's lock.
template <class Result, class... Args, class... Extra>
void bind_function(py::module_& m, const char* name, Result (*function)(Args...), const char* text,
                   const Extra&... extra) {
  if constexpr (std::is_same_v<Result, Tensor> || std::is_void_v<Result> ||
                std::is_arithmetic_v<Result>) {
    m.def(name, function, Released(), extra..., text);
  } else {
    m.def(
        name,
        [function](std::decay_t<Args>... args) {
          return for_python(released([&] { return function(args...); }));
        },
        extra..., text);
  }
}

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
    bound.def(name, change, "x"_a, extra..., text);
  } else {
    bound.def(name, change, extra..., text);
  }
}

}  // namespace weft::python

namespace pybind11::detail {

/// A number, not a tensor.
template <> struct type_caster<weft::Number> {
  PYBIND11_TYPE_CASTER(weft::Number, const_name("float"));
  bool load(handle source, bool) {
    weft::Operand operand;
    if (!weft::python::load_operand(source, operand) || !operand.is_number()) return false;
    value = operand.number;
    return true;
  }
  static handle cast(const weft::Number& number, return_value_policy, handle) {
    return number.kind == weft::Number::Kind::floating
               ? float_(number.value).release()
               : int_(static_cast<int64_t>(number.value)).release();
  }
};

}  // namespace pybind11::detail
