// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "src/base/complex.h"
#include "src/base/half.h"
#include "weft/dtype.h"
#include "weft/error.h"

namespace weft {

/// The C++ types of elements, by position in DType.
using ElementTypes = std::tuple<float, bfloat16, float16, double, int32_t, int64_t, uint8_t, bool,
                                int8_t, int16_t, uint16_t, uint32_t, uint64_t, float8_e4m3,
                                float8_e5m2, Complex<float>, Complex<double>>;
template <DType dtype>
using type_of = std::tuple_element_t<static_cast<size_t>(dtype), ElementTypes>;

template <class T, class... Types> constexpr DType dtype_among(const std::tuple<Types...>*) {
  int place = 0;
  const bool found = ((std::is_same_v<T, Types> || (++place, false)) || ...);
  return found ? static_cast<DType>(place) : DType::boolean;
}
/// The dtype whose elements are T.
template <class T>
inline constexpr DType dtype_of = dtype_among<T>(static_cast<const ElementTypes*>(nullptr));

/// The address of an element of `data`.
inline std::byte* element_at(const void* data, int64_t index, DType dtype) {
  return static_cast<std::byte*>(const_cast<void*>(data)) +
         index * static_cast<int64_t>(size_of(dtype));
}

/// The type that kernels compute in: float for f32 and halves, double for f64, else int64_t, which
/// has the bits of u64 too.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double,
                                   std::conditional_t<is_floating_type<T>, float, int64_t>>;

/// Converts a number for arithmetic in T, negative ones too where T has no sign.
template <class T> WEFT_FN constexpr T number_as(double x) {
  if constexpr (std::is_unsigned_v<T>) return static_cast<T>(static_cast<int64_t>(x));
  return static_cast<T>(x);
}

/// Converts a number to an integer, a floating one by truncation. Negative numbers wrap in unsigned
/// types, numbers out of range in narrow ones.
template <class To, class From> WEFT_FN constexpr To truncated(From x) {
  if constexpr (std::is_integral_v<From>) {
    return static_cast<To>(x);
  } else if constexpr (sizeof(To) < sizeof(int32_t)) {
    return static_cast<To>(static_cast<int32_t>(x));
  } else if constexpr (std::is_same_v<To, uint32_t>) {
    return static_cast<To>(static_cast<int64_t>(x));
  } else if constexpr (std::is_same_v<To, uint64_t>) {
    return x < From(0x1p63) ? static_cast<To>(static_cast<int64_t>(x)) : static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

/// The dtype of Compute; of a complex dtype itself.
constexpr DType compute_dtype(DType dtype) {
  if (dtype == DType::f64 || is_complex(dtype)) return dtype;
  return is_floating(dtype) ? DType::f32 : DType::i64;
}

/// A type passed as a value, for visitors.
template <class T> struct Type { using type = T; };

/// Calls visitor(Type<T>{}) with T the element type of `dtype`, which is f32, bf16, f16 or f64; for
/// others it throws an error that begins with `what`.
template <class Visitor>
decltype(auto) visit_floating(const char* what, DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::f32: return visitor(Type<float>{});
    case DType::bf16: return visitor(Type<bfloat16>{});
    case DType::f16: return visitor(Type<float16>{});
    case DType::f64: return visitor(Type<double>{});
    default: fail(what, ": dtype is ", dtype, ", expected f32, bf16, f16 or f64; cast it first");
  }
}

/// The same for all dtypes.
template <class Visitor> decltype(auto) visit(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::i32: return visitor(Type<int32_t>{});
    case DType::i64: return visitor(Type<int64_t>{});
    case DType::u8: return visitor(Type<uint8_t>{});
    case DType::boolean: return visitor(Type<bool>{});
    case DType::i8: return visitor(Type<int8_t>{});
    case DType::i16: return visitor(Type<int16_t>{});
    case DType::u16: return visitor(Type<uint16_t>{});
    case DType::u32: return visitor(Type<uint32_t>{});
    case DType::u64: return visitor(Type<uint64_t>{});
    case DType::f8_e4m3: return visitor(Type<float8_e4m3>{});
    case DType::f8_e5m2: return visitor(Type<float8_e5m2>{});
    default: return visit_floating("visit", dtype, visitor);
  }
}

/// Throws for a dtype that a kernel does not compute in.
[[noreturn]] inline void refuse_complex(const char* what, DType dtype) {
  fail(what, ": dtype is ", dtype, ", expected a real one; complex numbers have no such kernel");
}

/// Calls visitor(Type<T>{}) with T the unsigned integer of 1, 2, 4 or 8 bytes.
template <class Visitor> decltype(auto) visit_word(size_t bytes, Visitor&& visitor) {
  switch (bytes) {
    case 1: return visitor(Type<uint8_t>{});
    case 2: return visitor(Type<uint16_t>{});
    case 4: return visitor(Type<uint32_t>{});
    case 8: return visitor(Type<uint64_t>{});
    default: refuse_complex("visit", DType::c128);
  }
}

/// The same, with Complex<double> for 16 bytes, for what only moves elements.
template <class Visitor> decltype(auto) visit_moved(size_t bytes, Visitor&& visitor) {
  if (bytes == sizeof(Complex<double>)) return visitor(Type<Complex<double>>{});
  return visit_word(bytes, visitor);
}

/// Calls visitor(Type<T>{}) with T Complex<float> or Complex<double>.
template <class Visitor> decltype(auto) visit_complex(DType dtype, Visitor&& visitor) {
  if (dtype == DType::c64) return visitor(Type<Complex<float>>{});
  return visitor(Type<Complex<double>>{});
}

/// Calls visitor(Type<T>{}) with T float, bfloat16, float16, double or, for other dtypes, the
/// unsigned type of that size: one instance for all that only moves bits, or wraps.
template <class Visitor> decltype(auto) visit_bits(DType dtype, Visitor&& visitor) {
  if (is_floating(dtype)) return visit_floating("visit", dtype, visitor);
  return visit_word(size_of(dtype), visitor);
}

/// Calls visitor(Type<C>{}) with C the compute type of `dtype`: float, double or int64_t.
template <class Visitor> decltype(auto) visit_compute(DType dtype, Visitor&& visitor) {
  switch (compute_dtype(dtype)) {
    case DType::f32: return visitor(Type<float>{});
    case DType::f64: return visitor(Type<double>{});
    case DType::i64: return visitor(Type<int64_t>{});
    default: refuse_complex("visit", dtype);
  }
}

/// Calls visitor(Type<C>{}) with C float, or double for f64; for integers it throws an error that
/// begins with `what`.
template <class Visitor>
decltype(auto) visit_compute_floating(const char* what, DType dtype, Visitor&& visitor) {
  if (!is_floating(dtype)) fail(what, ": dtype is ", dtype, ", expected a floating one");
  if (is_complex(dtype)) refuse_complex(what, dtype);
  if (dtype == DType::f64) return visitor(Type<double>{});
  return visitor(Type<float>{});
}

}  // namespace weft
