// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <utility>

#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/number.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
#include "weft/sharding.h"

namespace weft {

/// The options of a new tensor on the device of `a`, Replicate over its mesh.
inline TensorOptions options_next_to(const Tensor& a, DType dtype) {
  TensorOptions options{.dtype = dtype, .device = a.device()};
  if (a.is_sharded()) options.sharding = Sharding(a.sharding().mesh(), {});
  return options;
}

/// first, first + 1, ..., last - 1 (i64) next to `a`.
inline Tensor numbers_next_to(const Tensor& a, int64_t first, int64_t last) {
  return arange(static_cast<double>(first), static_cast<double>(last), 1,
                options_next_to(a, DType::i64));
}

/// Returns `tensor` as `dtype`; itself if it has that dtype.
inline Tensor as_dtype(const Tensor& tensor, DType dtype) {
  return tensor.dtype() == dtype ? tensor : cast(tensor, dtype);
}

/// A backward that gives each operand that wants one the gradient that its function returns.
inline std::function<void(const Grad&)> give_each(std::vector<Tensor (*)(const Grad&)> gradients) {
  return [gradients = std::move(gradients)](const Grad& g) {
    for (int i = 0; const auto gradient : gradients) {
      if (g.wants(i)) g.give(i, gradient(g));
      ++i;
    }
  };
}

/// Calls an op of two operands in the dtype that both promote to.
inline Tensor call_promoted(const Op& op, const Tensor& a, const Tensor& b) {
  if (!a || !b) fail(op.spec().name, ": no tensor is given, expected one");
  if (a.dtype() == b.dtype()) [[likely]]
    return op({a, b});
  DType dtype = promote(a.dtype(), b.dtype());
  return op({as_dtype(a, dtype), as_dtype(b, dtype)});
}

/// The same for functions that are not defined on integers, which become f32.
inline Tensor call_promoted_floating(const Op& op, const Tensor& a, const Tensor& b,
                                     const Attributes& attributes = kNoAttributes) {
  if (!a || !b) fail(op.spec().name, ": no tensor is given, expected one");
  const DType both = promote(a.dtype(), b.dtype()), dtype = is_floating(both) ? both : DType::f32;
  return op({as_dtype(a, dtype), as_dtype(b, dtype)}, attributes);
}

/// The values of an integer dtype: `least` to below `end`.
struct IntegerRange {
  double least, end;
};
inline IntegerRange range_of(DType dtype) {
  double span = 1;
  for (size_t byte = 0; byte < size_of(dtype); ++byte) span *= 0x1p8;
  return is_unsigned(dtype) ? IntegerRange{0, span} : IntegerRange{-span / 2, span / 2};
}

/// Returns whether a whole number is within the range of an integer dtype.
inline bool holds(DType dtype, const Number& number) {
  const auto [least, end] = range_of(dtype);
  if (!number.is_rounded()) return number.value >= least && number.value < end;
  // Its value may be rounded up to the end.
  const bool needs_u64 = number.value > 0 && number.bits < 0;
  return size_of(dtype) == 8 && (is_unsigned(dtype) ? number.value > 0 : !needs_u64);
}

/// Throws std::invalid_argument when a whole number is outside the range of an integer dtype.
inline void check_holds(const char* what, DType dtype, const Number& number) {
  if (dtype == DType::boolean || holds(dtype, number)) return;
  fail(what, ": number is ", number.value, ", expected one that ", dtype,
       " holds; cast the tensor first");
}

/// A double cannot represent large integers and complex numbers: these become tensors. Throws for
/// those that the tensor's dtype does not hold.
inline bool needs_tensor(const char* what, const Tensor& a, const Number& number) {
  if (number.kind == Number::Kind::complex) return static_cast<bool>(a);
  if (!number.is_rounded() || !a || is_floating(a.dtype())) return false;
  check_holds(what, promote(a.dtype(), number), number);
  return true;
}

/// Casts a tensor to the dtype that it and the number promote to.
inline Tensor for_scalar(const char* what, const Tensor& a, const Number& scalar) {
  if (!a) fail(what, ": no tensor is given, expected one");
  if (is_floating(a.dtype())) [[likely]]
    return a;
  const DType dtype = promote(a.dtype(), scalar);
  if (!is_floating(dtype)) check_holds(what, dtype, scalar);
  return as_dtype(a, dtype);
}

/// Returns the dtype of sums and products of elements of `dtype`: of integers, that of 64 bits with
/// the same sign, as in the Python array API.
constexpr DType total_dtype(DType dtype) {
  if (is_floating(dtype)) return dtype;
  return is_unsigned(dtype) ? DType::u64 : DType::i64;
}

inline DType dtype_of_total(const Attributes&, std::span<const DType> dtypes, int) {
  return total_dtype(dtypes[0]);
}

/// Prepares an operand of a sum in 64 bits. Reducing a Partial of narrower integers over ranks
/// wraps, and reducing one of bool is "any", so it is reduced before it is widened.
inline Tensor reduced_before_widening(const Tensor& a) {
  if (!a || is_floating(a.dtype()) || a.dtype() == total_dtype(a.dtype())) return a;
  return a.is_sharded() && a.sharding().has_partial() ? cast(a, total_dtype(a.dtype())) : a;
}

/// Kernels that compare compute integers as i64. Returns u64 as the i64 of the same order, for
/// them, and other tensors as they are; ordered_back undoes it.
inline Tensor ordered_as_i64(const Tensor& a) {
  if (!a || a.dtype() != DType::u64) return a;
  const Tensor bits = cast(a, DType::i64);
  return bitwise_xor(bits, number_like(bits, std::numeric_limits<int64_t>::min()));
}
inline Tensor ordered_back(const Tensor& a, DType dtype) {
  if (dtype != DType::u64) return a;
  return cast(bitwise_xor(a, number_like(a, std::numeric_limits<int64_t>::min())), dtype);
}

/// Calls an op that compares elements of operand 0, of which result 0 is made.
inline Tensors call_ordered(const Op& op, Tensors operands, const Attributes& attributes) {
  const DType dtype = operands[0].dtype();
  for (Tensor& operand : operands) operand = ordered_as_i64(operand);
  Tensors results = op.call(operands, attributes);
  results[0] = ordered_back(results[0], dtype);
  return results;
}

/// Casts integers to f32, for functions that are not defined on them.
inline Tensor as_floating(const char* what, const Tensor& a) {
  if (!a) fail(what, ": no tensor is given, expected one");
  return is_floating(a.dtype()) ? a : cast(a, DType::f32);
}

/// True for a layout in which a rank's elements are not in one box: values that follow from places
/// are then computed whole and cut.
inline bool cuts_inside(const TensorOptions& options) {
  return options.sharding && options.sharding.has_inner();
}
/// The same options for a whole tensor.
inline TensorOptions uncut(TensorOptions options) {
  options.sharding = Sharding(options.sharding.mesh(), {});
  return options;
}

}  // namespace weft
