// SPDX-License-Identifier: Apache-2.0
#include "weft/dtype.h"

#include <array>
#include <ostream>

#include "weft/error.h"

namespace weft {

static constexpr std::array<std::string_view, kDTypes> kDTypeNames = {
    "f32", "bf16", "f16", "f64", "i32", "i64",     "u8",     "bool",
    "i8",  "i16",  "u16", "u32", "u64", "f8_e4m3", "f8_e5m2"};

std::string_view name_of(DType dtype) { return kDTypeNames[static_cast<size_t>(dtype)]; }

DType dtype_named(std::string_view name) {
  for (size_t i = 0; i < kDTypeNames.size(); ++i) {
    if (kDTypeNames[i] == name) return static_cast<DType>(i);
  }
  fail("dtype: name is \"", name, "\", expected f32, bf16, f16, f64, i8, i16, i32, i64, u8, u16, ",
       "u32, u64, f8_e4m3, f8_e5m2 or bool");
}

static DType promote_integers(DType a, DType b) {
  if (a == DType::boolean || b == DType::boolean) return a == DType::boolean ? b : a;
  if (is_unsigned(a) == is_unsigned(b)) return size_of(a) >= size_of(b) ? a : b;
  const DType with_sign = is_unsigned(a) ? b : a, without = is_unsigned(a) ? a : b;
  if (size_of(with_sign) > size_of(without)) return with_sign;
  switch (size_of(without)) {
    case 1: return DType::i16;
    case 2: return DType::i32;
    case 4: return DType::i64;
    default:
      fail("promote: dtypes are ", a, " and ", b,
           ", expected ones whose values an integer dtype holds; cast one first");
  }
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_float8(a) || is_float8(b)) {
    fail("promote: dtypes are ", a, " and ", b, ", expected ones with arithmetic; cast ",
         is_float8(a) ? a : b, " first");
  }
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (!is_floating(a)) return promote_integers(a, b);
  return a == DType::f64 || b == DType::f64 ? DType::f64 : DType::f32;
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

}  // namespace weft
