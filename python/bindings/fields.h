// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "python/bindings/casters.h"

namespace weft::python {

// Structs of options: a table of fields makes the arguments of a constructor.

/// A field of the struct C, as an argument.
template <class C, class T, class Argument> struct MemberField {
  using Value = std::conditional_t<std::is_same_v<T, Tensor>, MaybeTensor, T>;
  Argument argument;
  T C::*member;
  void set(C& all, Value value) const { all.*member = std::move(value); }
};

/// An argument that set(C&, Given) passes on to fields.
template <class Given, class Set> struct ConvertedField {
  using Value = Given;
  py::arg_v argument;
  Set set;
};

/// A field that must be given.
template <class C, class T> auto needed(const char* name, T C::*member) {
  return MemberField<C, T, py::arg>{py::arg(name), member};
}
/// A field whose default is that of C.
template <class C, class T> auto option(const char* name, T C::*member) {
  using Value = typename MemberField<C, T, py::arg_v>::Value;
  return MemberField<C, T, py::arg_v>{py::arg(name) = Value(C().*member), member};
}
/// A field that is convert(given).
template <class C, class T, class Given>
auto converted(const py::arg_v& argument, T C::*member, T (*convert)(Given)) {
  const auto set = [=](C& all, const std::decay_t<Given>& given) { all.*member = convert(given); };
  return ConvertedField<std::decay_t<Given>, decltype(set)>{argument, set};
}
/// A field of a field.
template <class C, class Outer, class Field> auto within(Outer C::*outer, const Field& field) {
  using Value = typename Field::Value;
  const auto set = [=](C& all, const Value& value) { field.set(all.*outer, value); };
  return ConvertedField<Value, decltype(set)>{field.argument, set};
}
/// What `converted` makes of an optional argument.
template <class T> T or_default(const std::optional<T>& given) { return given.value_or(T()); }
/// The fields beta1 and beta2 as a pair.
template <class C> auto betas_of() {
  using Betas = std::pair<double, double>;
  const auto set = [](C& all, const Betas& betas) { std::tie(all.beta1, all.beta2) = betas; };
  return ConvertedField<Betas, decltype(set)>{"betas"_a = Betas(C().beta1, C().beta2), set};
}

template <class Item> auto fields_in(const Item& item) {
  if constexpr (requires { typename Item::Value; })
    return std::tuple(item);
  else
    return std::tuple();
}
template <class Item> auto argument_of(const Item& item) {
  if constexpr (requires { typename Item::Value; })
    return item.argument;
  else
    return item;
}

/// Calls define(function, items) with a function that calls make(leading, C). The items are what
/// `def` takes, with fields of C.
template <class C, class... Leading, class Define, class Make, class... Items>
void with_fields(const Define& define, const Make& make, const Items&... items) {
  const auto of_fields = [&]<class... Fields>(const Fields&... fields) {
    const auto made = [=](const Leading&... leading, typename Fields::Value... values) {
      C all{};
      (fields.set(all, std::move(values)), ...);
      return make(leading..., std::move(all));
    };
    define(made, argument_of(items)...);
  };
  std::apply(of_fields, std::tuple_cat(fields_in(items)...));
}
/// Binds make(leading, C) as a function, or a method.
template <class C, class... Leading, class Bound, class Make, class... Items>
void bind_with_fields(Bound& bound, const char* name, const Make& make, const Items&... items) {
  const auto define = [&](const auto&... what) { bound.def(name, what...); };
  with_fields<C, Leading...>(define, make, items...);
}
/// Binds it as a constructor.
template <class C, class... Leading, class Bound, class Make, class... Items>
void bind_constructor(Bound& bound, const Make& make, const Items&... items) {
  const auto define = [&](const auto& made, const auto&... what) {
    bound.def(py::init(made), what...);
  };
  with_fields<C, Leading...>(define, make, items...);
}

/// Binds C, made of these items.
template <class C, class... Items>
py::class_<C> bind_options(py::module_& m, const char* name, const char* doc,
                           const Items&... items) {
  py::class_<C> bound(m, name, doc);
  bind_constructor<C>(
      bound, [](C all) { return all; }, items...);
  return bound;
}

}  // namespace weft::python
