// SPDX-License-Identifier: Apache-2.0
#include "weft/dtype.h"

#include <array>
#include <ostream>

#include "weft/error.h"

namespace weft {

static constexpr std::array<std::string_view, kDTypes> kDTypeNames = {"f32", "bf16", "f16", "f64",
                                                                      "i32", "i64",  "u8",  "bool"};

std::string_view name_of(DType dtype) { return kDTypeNames[static_cast<size_t>(dtype)]; }

DType dtype_named(std::string_view name) {
  for (size_t i = 0; i < kDTypeNames.size(); ++i) {
    if (kDTypeNames[i] == name) return static_cast<DType>(i);
  }
  fail("dtype: name is ", in_quotes(name), ", expected f32, bf16, f16, f64, i32, i64, u8 or bool");
}

/// Orders integer types so that each can hold the values of the ones before it; u8 fits into i32.
static int integer_rank(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return 0;
    case DType::u8:
      return 1;
    case DType::i32:
      return 2;
    default:
      return 3;
  }
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (!is_floating(a)) return integer_rank(a) > integer_rank(b) ? a : b;
  return a == DType::f64 || b == DType::f64 ? DType::f64 : DType::f32;
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

}  // namespace weft
