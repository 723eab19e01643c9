// SPDX-License-Identifier: Apache-2.0
#include "ops/functions.h"
#include "ops/promotion.h"
#include "weft/ops/logic.h"

namespace weft {

// Integers are computed in 64 bits; the dtype keeps the lower ones.

namespace {

struct BitNot {
  static constexpr bool kKeepsWidth = true;
  template <class T> WEFT_FN T operator()(T a) const { return static_cast<T>(~a); }
};
struct BitAnd {
  static constexpr bool kKeepsWidth = true;
  template <class T> WEFT_FN T operator()(T a, T b) const { return static_cast<T>(a & b); }
};
struct BitOr {
  static constexpr bool kKeepsWidth = true;
  template <class T> WEFT_FN T operator()(T a, T b) const { return static_cast<T>(a | b); }
};
struct BitXor {
  static constexpr bool kKeepsWidth = true;
  template <class T> WEFT_FN T operator()(T a, T b) const { return static_cast<T>(a ^ b); }
};
struct ShiftLeft {
  WEFT_FN int64_t operator()(int64_t a, int64_t b) const {
    const uint64_t bits = static_cast<uint64_t>(b);
    return bits < 64 ? static_cast<int64_t>(static_cast<uint64_t>(a) << bits) : 0;
  }
};
struct ShiftRight {
  static constexpr bool kDependsOnSign = true;
  WEFT_FN uint64_t operator()(uint64_t a, uint64_t b) const { return b < 64 ? a >> b : 0; }
  WEFT_FN int64_t operator()(int64_t a, int64_t b) const {
    const uint64_t bits = static_cast<uint64_t>(b);
    return a >> (bits < 64 ? bits : 63);
  }
};

template <class F> Op bit_function(const char* name, double low) {
  return elementwise<F, 2, MapDomain::integer>({
      .name = name,
      .differentiable = false,
      .samples = {{.shapes = {{5, 7}, {5, 7}}, .dtypes = {i64, i64}, .low = low, .high = 9},
                  {.shapes = {{5, 7}, {7}}, .dtypes = {u8, u8}, .low = 0, .high = 9}},
  });
}

}  // namespace

static const Op bitwise_invert_op = elementwise<BitNot, 1, MapDomain::integer>({
    .name = "bitwise_invert",
    .differentiable = false,
    .samples = {{.shapes = {{5, 7}}, .dtypes = {i64}, .low = -9, .high = 9},
                {.shapes = {{5, 7}}, .dtypes = {u8}, .low = 0, .high = 9}},
});
static const Op bitwise_and_op = bit_function<BitAnd>("bitwise_and", -9);
static const Op bitwise_or_op = bit_function<BitOr>("bitwise_or", -9);
static const Op bitwise_xor_op = bit_function<BitXor>("bitwise_xor", -9);
static const Op left_shift_op = bit_function<ShiftLeft>("bitwise_left_shift", 0);
static const Op right_shift_op = bit_function<ShiftRight>("bitwise_right_shift", 0);

static void check_has_bits(const Op& op, const Tensor& a, bool of_bool) {
  if (!a) fail(op.spec().name, ": no tensor is given, expected one");
  if (is_floating(a.dtype()) || (a.dtype() == boolean && !of_bool)) {
    fail(op.spec().name, ": dtype of operand ", a.shape(), " is ", a.dtype(),
         ", expected an integer", of_bool ? " or bool" : "");
  }
}

static Tensor on_bits(const Op& op, const Tensor& a, const Tensor& b, bool of_bool) {
  check_has_bits(op, a, of_bool);
  check_has_bits(op, b, of_bool);
  return call_promoted(op, a, b);
}

Tensor bitwise_invert(const Tensor& a) {
  check_has_bits(bitwise_invert_op, a, true);
  return a.dtype() == boolean ? logical_not(a) : bitwise_invert_op({a});
}
Tensor bitwise_and(const Tensor& a, const Tensor& b) { return on_bits(bitwise_and_op, a, b, true); }
Tensor bitwise_or(const Tensor& a, const Tensor& b) { return on_bits(bitwise_or_op, a, b, true); }
Tensor bitwise_xor(const Tensor& a, const Tensor& b) { return on_bits(bitwise_xor_op, a, b, true); }
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b) {
  return on_bits(left_shift_op, a, b, false);
}
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b) {
  return on_bits(right_shift_op, a, b, false);
}

}  // namespace weft
