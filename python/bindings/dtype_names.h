// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "weft/dtype.h"

namespace weft::python {

/// The names in NumPy, PyTorch and the array API, by DType.
inline constexpr std::array<const char*, kDTypes> kLongNames = {
    "float32", "bfloat16", "float16", "float64", "int32",  "int64",         "uint8",      "bool",
    "int8",    "int16",    "uint16",  "uint32",  "uint64", "float8_e4m3fn", "float8_e5m2"};

inline constexpr const char* long_name_of(DType dtype) {
  return kLongNames[static_cast<size_t>(dtype)];
}

/// Returns nothing for any other name.
inline std::optional<DType> dtype_of_long_name(std::string_view name) {
  for (size_t i = 0; i < kDTypes; ++i) {
    if (name == kLongNames[i]) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace weft::python
