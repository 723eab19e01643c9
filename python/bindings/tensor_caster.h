// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <utility>

#include "python/bindings/interpreter.h"
#include "weft/tensor.h"

namespace pybind11::detail {

/// Finds the bound class once, not for each argument and result. Refuses a tensor whose __init__
/// did not run, for which pybind11 would allocate memory.
template <> struct type_caster<weft::Tensor> : type_caster_generic {
  using Tensor = weft::Tensor;
  static constexpr auto name = const_name<Tensor>();
  template <class T> using cast_op_type = detail::cast_op_type<T>;

  type_caster() : type_caster_generic(bound_class()) {}
  bool load(handle source, bool convert) {
    if (source) weft::python::check_value(source);
    return type_caster_generic::load(source, convert);
  }
  operator Tensor*() { return static_cast<Tensor*>(value); }
  operator Tensor&() {
    if (!value) throw reference_cast_error();
    return *static_cast<Tensor*>(value);
  }

  static handle cast(const Tensor* tensor, return_value_policy policy, handle parent) {
    const auto copied = [](const void* source) -> void* {
      return new Tensor(*static_cast<const Tensor*>(source));
    };
    const auto moved = [](const void* source) -> void* {
      return new Tensor(std::move(*const_cast<Tensor*>(static_cast<const Tensor*>(source))));
    };
    return type_caster_generic::cast(tensor, policy, parent, bound_class(), copied, moved);
  }
  static handle cast(const Tensor& tensor, return_value_policy policy, handle parent) {
    const bool is_automatic = policy == return_value_policy::automatic ||
                              policy == return_value_policy::automatic_reference;
    return cast(&tensor, is_automatic ? return_value_policy::copy : policy, parent);
  }
  static handle cast(Tensor&& tensor, return_value_policy, handle parent) {
    return cast(&tensor, return_value_policy::move, parent);
  }

 private:
  static const type_info* bound_class() {
    static const type_info* const found = get_type_info(typeid(Tensor));
    return found;
  }
};

}  // namespace pybind11::detail
