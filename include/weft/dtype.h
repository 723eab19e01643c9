// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string_view>

#include "weft/export.h"

namespace weft {

/// Element types of tensors. c64 and c128 are complex: two f32, or two f64. f8_e4m3 (OCP's E4M3: no
/// infinity, at most 448) and f8_e5m2 (at most 57344) hold what is stored or sent: they are moved,
/// compared and cast, and have no arithmetic.
enum class DType : uint8_t {
  f32,
  bf16,
  f16,
  f64,
  i32,
  i64,
  u8,
  boolean,
  i8,
  i16,
  u16,
  u32,
  u64,
  f8_e4m3,
  f8_e5m2,
  c64,
  c128
};

inline constexpr DType f32 = DType::f32, bf16 = DType::bf16, f16 = DType::f16, f64 = DType::f64;
inline constexpr DType i8 = DType::i8, i16 = DType::i16, i32 = DType::i32, i64 = DType::i64;
inline constexpr DType u8 = DType::u8, u16 = DType::u16, u32 = DType::u32, u64 = DType::u64;
inline constexpr DType f8_e4m3 = DType::f8_e4m3, f8_e5m2 = DType::f8_e5m2;
inline constexpr DType c64 = DType::c64, c128 = DType::c128;
inline constexpr DType boolean = DType::boolean;
inline constexpr int kDTypes = 17;

/// Bytes of one element.
constexpr size_t size_of(DType dtype) {
  // Their logarithms, a hexadecimal digit a dtype from the right. An array would be built at each
  // call, and c128, the last one, has no digit.
  constexpr uint64_t logarithms = 0x3'0032'1100'0323'112;
  return dtype == DType::c128 ? 16 : size_t{1} << (logarithms >> 4 * static_cast<int>(dtype) & 15);
}

constexpr bool is_float8(DType dtype) { return dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2; }
constexpr bool is_complex(DType dtype) { return dtype >= DType::c64; }
/// True for dtypes of numbers with a fraction, real and complex.
constexpr bool is_floating(DType dtype) { return dtype <= DType::f64 || dtype >= DType::f8_e4m3; }

/// The dtype of the parts of a complex dtype; other dtypes as they are.
constexpr DType real_dtype(DType dtype) {
  return dtype == DType::c64 ? DType::f32 : dtype == DType::c128 ? DType::f64 : dtype;
}
/// The complex dtype that holds numbers of `dtype`: c128 for f64 and c128, otherwise c64.
constexpr DType complex_dtype(DType dtype) {
  return dtype == DType::f64 || dtype == DType::c128 ? DType::c128 : DType::c64;
}

constexpr bool is_unsigned(DType dtype) {
  return dtype == DType::u8 || (dtype >= DType::u16 && dtype <= DType::u64);
}
constexpr bool is_integer(DType dtype) { return !is_floating(dtype) && dtype != DType::boolean; }

/// "f32", "bf16", "f16", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64",
/// "f8_e4m3", "f8_e5m2", "c64", "c128" or "bool".
WEFT_API std::string_view name_of(DType dtype);

/// Returns the dtype of that name; std::invalid_argument lists the valid names.
WEFT_API DType dtype_named(std::string_view name);

/// The dtype that holds both, as in the Python array API; integer with float gives the float,
/// real with complex the complex dtype of both precisions.
/// std::invalid_argument for u64 with a signed integer, because no integer dtype holds both, and
/// for f8 with another dtype.
WEFT_API DType promote(DType a, DType b);

WEFT_API std::ostream& operator<<(std::ostream& out, DType dtype);

}  // namespace weft
