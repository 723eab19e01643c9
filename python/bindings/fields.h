// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "python/bindings/casters.h"

namespace weft::python {

// Structs of options: a table of fields makes the arguments of a constructor, and attributes.

/// An argument that set(C&, Given) passes on to fields of the struct C; `get` is null, or
/// get(const C&) returns what was given.
template <class Given, class Argument, class Set, class Get> struct Field {
  using Value = Given;
  Argument argument;
  Set set;
  Get get;
};
template <class Given, class Argument, class Set, class Get = std::nullptr_t>
auto field(const Argument& argument, const Set& set, const Get& get = {}) {
  return Field<Given, Argument, Set, Get>{argument, set, get};
}
template <class T> using Value = std::conditional_t<std::is_same_v<T, Tensor>, MaybeTensor, T>;

template <class C, class T, class Argument>
auto member_field(const Argument& argument, T C::*member) {
  return field<Value<T>>(
      argument, [=](C& all, Value<T> value) { all.*member = std::move(value); },
      [=](const C& all) -> Value<T> { return all.*member; });
}
/// A field that must be given.
template <class C, class T> auto needed(const char* name, T C::*member) {
  return member_field(py::arg(name), member);
}
/// A field whose default is that of C.
template <class C, class T> auto option(const char* name, T C::*member) {
  return member_field(py::arg(name) = Value<T>(C().*member), member);
}
/// A field of an enum, by `names` of its values in order; errors begin with `what`.
template <class C, class E>
auto choice(const char* what, const char* name, E C::*member,
            const std::vector<const char*>& names) {
  const auto name_in = [=](const C& all) { return names[static_cast<size_t>(all.*member)]; };
  const auto set = [=](C& all, const std::string& given) {
    all.*member = static_cast<E>(number_among(what, name, given, names));
  };
  return field<std::string>(py::arg(name) = name_in(C()), set, name_in);
}
/// A field that is convert(given).
template <class C, class T, class Given>
auto converted(const py::arg_v& argument, T C::*member, T (*convert)(Given)) {
  using Value = std::decay_t<Given>;
  return field<Value>(argument, [=](C& all, const Value& given) { all.*member = convert(given); });
}
/// A field of a field.
template <class C, class Outer, class Field> auto within(Outer C::*outer, const Field& inner) {
  using Value = typename Field::Value;
  return field<Value>(inner.argument,
                      [=](C& all, const Value& value) { inner.set(all.*outer, value); });
}
/// The value of an optional argument, or the default.
template <class T> T or_default(const std::optional<T>& given) { return given.value_or(T()); }
/// The fields beta1 and beta2 as a pair.
template <class C> auto betas_of() {
  using Betas = std::pair<double, double>;
  return field<Betas>("betas"_a = Betas(C().beta1, C().beta2),
                      [](C& all, const Betas& betas) { std::tie(all.beta1, all.beta2) = betas; });
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
/// Binds items as attributes if they are fields that `get` returns.
template <class C, class... Items>
void bind_attributes(py::class_<C>& bound, const Items&... items) {
  [[maybe_unused]] const auto bind = [&](const auto& item) {
    if constexpr (requires(const C& all) { item.get(all); }) {
      bound.def_property(item.argument.name, item.get, item.set);
    }
  };
  (bind(items), ...);
}

/// Binds C, made of these items, with its fields as attributes.
template <class C, class... Items>
py::class_<C> bind_options(py::module_& m, const char* name, const char* doc,
                           const Items&... items) {
  py::class_<C> bound(m, name, doc);
  bind_constructor<C>(
      bound, [](C all) { return all; }, items...);
  bind_attributes(bound, items...);
  return bound;
}

}  // namespace weft::python
