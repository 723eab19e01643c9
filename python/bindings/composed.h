// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "python/bindings/casters.h"
#include "weft/error.h"
#include "weft/module.h"
#include "weft/number.h"
#include "weft/ops/along_dim.h"
#include "weft/ops/reductions.h"
#include "weft/ops/special.h"

// The one mechanism that binds functions: a line each, with the signature, the function and its
// text. Numbers, operands, lists and pairs convert by their types.

namespace weft::python {

/// The name and the arguments of a function as Python writes them: "flip(x, *, axis=None)", with
/// literals without commas as defaults. An attribute of `def`.
class Signature {
 public:
  Signature(const char* text) : Signature(std::string(text)) {}
  Signature(const std::string& text);
  const char* name() const { return name_.c_str(); }
  /// Adds the arguments to the record of a function, which must have as many.
  void declare_in(py::detail::function_record& record) const;

 private:
  std::string name_;
  /// Names, and defaults of those that have one.
  std::vector<std::pair<std::string, py::object>> arguments_;
};

/// Adds a type of named tuples to the module, for results with "fields".
py::object add_named_tuple(py::module_& m, const char* name, const char* fields, const char* text);

/// The named tuple of a function's results, of a type that the module has by that name.
py::object named_tuple(const char* name, std::initializer_list<Tensor> results);

// Results of functions that are other objects for Python, as tensors are a tuple.
std::tuple<Tensor, Tensor, Tensor> for_python(const UniqueConsecutive& results);
py::object for_python(const ValuesAndIndices& results);
py::object for_python(const Histogram& results);
py::object for_python(const FractionAndExponent& results);

template <class Function, class Result, class... Args>
void define(py::module_& m, const Signature& signature, const char* text, const Function& function,
            Result (*)(Args...)) {
  const auto bind = [&](const auto& bound, const auto&... more) {
    m.def(signature.name(), bound, more..., signature, text);
  };
  if constexpr (std::is_base_of_v<py::handle, Result> ||
                (std::is_base_of_v<py::handle, std::decay_t<Args>> || ...)) {
    bind(function);
  } else if constexpr (requires(Result result) { for_python(result); }) {
    bind([function](std::decay_t<Args>... args) {
      return for_python(released([&] { return function(args...); }));
    });
  } else {
    bind(function, Released());
  }
}
/// Binds a function, which runs without the interpreter's lock unless it takes or returns objects
/// of Python.
template <class Function>
void def(py::module_& m, const Signature& signature, const char* text, const Function& function) {
  using Type = py::detail::function_signature_t<Function>;
  define(m, signature, text, function, static_cast<Type*>(nullptr));
}
template <class Function>
void def(py::module_& m, const Signature& signature, const Function& function,
         const char* text = "") {
  def(m, signature, text, function);
}
/// Binds one that runs with the lock.
struct Held {};
template <class Function>
void def(py::module_& m, const Signature& signature, const char* text, Held,
         const Function& function) {
  m.def(signature.name(), function, signature, text);
}
/// Binds a method, which runs with the lock unless it is Released.
template <class Class, class... Options, class Function>
void def(py::class_<Class, Options...>& bound, const Signature& signature, const char* text,
         const Function& function) {
  bound.def(signature.name(), function, signature, text);
}
template <class Class, class... Options, class Function>
void def(py::class_<Class, Options...>& bound, const Signature& signature, const char* text,
         const Released& guard, const Function& function) {
  bound.def(signature.name(), function, signature, guard, text);
}
template <class Class, class... Options, class Function>
void getter(py::class_<Class, Options...>& bound, const char* name, const char* text,
            const Function& function) {
  bound.def_property_readonly(name, function, text);
}

/// The function as one of arguments of other types that convert, such as MaybeTensor.
template <class... Args, class Function> auto taking(Function* function) {
  return [function](const Args&... args) { return function(args...); };
}

/// function(x), computed as `dtype`, which the result has too, if one is given.
template <class Function>
Tensor as_dtype(const Tensor& x, const std::optional<DType>& dtype, const Function& function) {
  return dtype ? function(x.to(*dtype)).to(*dtype) : function(x);
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
  fail_type("in place: a ", type_of(object), " is changed, expected a Tensor");
}

/// Runs change(tensor) and returns the object itself: `a += 1` leaves the name to the same object.
template <class Change> py::object changed(const py::object& self, const Change& change) {
  const Tensor tensor = changeable(self);
  released([&] { change(tensor); });
  return self;
}

/// Binds a function that changes the elements of a tensor, in a module or as a method; returns the
/// object.
template <class Bound, class Result, class... Args>
void bind_change(Bound& bound, const Signature& signature,
                 Result (*function)(const Tensor&, Args...), const char* text) {
  const auto change = [function](const py::object& x, Args... args) {
    return changed(x, [&](const Tensor& to) { function(to, args...); });
  };
  bound.def(signature.name(), change, signature, text);
}

}  // namespace weft::python

namespace pybind11::detail {

template <>
struct process_attribute<weft::python::Signature>
    : process_attribute_default<weft::python::Signature> {
  static void init(const weft::python::Signature& signature, function_record* record) {
    signature.declare_in(*record);
  }
};

/// A number, real or complex, not a tensor.
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
