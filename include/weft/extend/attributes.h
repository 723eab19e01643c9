// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "weft/shape.h"

namespace weft {

/// Arguments of an op call other than its operands. Only `structure` (dims, flags, sizes) is part
/// of the key under which the call's route is cached; `values` (scalars, eps) and `random` (seed,
/// stream) are not. An op that takes several numbers declares a struct of at most 6 fields of
/// number types for them, and converts with `pack_structure`, `pack_values` and `unpack`: field i
/// is number i.
struct Attributes {
  Dims structure = {};
  std::array<double, 6> values{};
  std::array<uint64_t, 2> random{};
};

/// Converts to the type of any field, to count the fields of a struct.
struct AnyField {
  template <class T> operator T() const;
};

/// Calls f with each field of `fields`, in order.
template <class Fields, class F> constexpr void for_each_field(Fields& fields, const F& f) {
  const auto each = [&](auto&... field) { (f(field), ...); };
  using A = AnyField;
  if constexpr (requires { Fields{A(), A(), A(), A(), A(), A()}; }) {
    auto& [f0, f1, f2, f3, f4, f5] = fields;
    each(f0, f1, f2, f3, f4, f5);
  } else if constexpr (requires { Fields{A(), A(), A(), A(), A()}; }) {
    auto& [f0, f1, f2, f3, f4] = fields;
    each(f0, f1, f2, f3, f4);
  } else if constexpr (requires { Fields{A(), A(), A(), A()}; }) {
    auto& [f0, f1, f2, f3] = fields;
    each(f0, f1, f2, f3);
  } else if constexpr (requires { Fields{A(), A(), A()}; }) {
    auto& [f0, f1, f2] = fields;
    each(f0, f1, f2);
  } else {
    auto& [f0, f1] = fields;
    each(f0, f1);
  }
}

/// Returns the fields that `numbers` (of `structure` or `values`) stand for.
template <class Fields, class Numbers> constexpr Fields unpack(const Numbers& numbers) {
  Fields fields{};
  auto number = numbers.begin();
  for_each_field(fields, [&]<class T>(T& field) { field = static_cast<T>(*number++); });
  return fields;
}

/// Returns the numbers that stand for `fields`, as `structure` or as `values`.
template <class Fields> Dims pack_structure(Fields fields) {
  Dims numbers;
  for_each_field(fields, [&](auto field) { numbers.push_back(static_cast<int64_t>(field)); });
  return numbers;
}
template <class Fields> constexpr std::array<double, 6> pack_values(Fields fields) {
  std::array<double, 6> numbers{};
  double* number = numbers.data();
  for_each_field(fields, [&](auto field) { *number++ = static_cast<double>(field); });
  return numbers;
}

}  // namespace weft
