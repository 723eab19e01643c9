// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "ops/engine/tensor_body.h"
#include "ops/promotion.h"
#include "src/kernels/copy/copy.h"
#include "weft/error.h"
#include "weft/ops/factories.h"

namespace weft {

static bool has_memory(const Tensor& a) { return a.device().kind != DeviceKind::meta; }

/// Returns `n` numbers f(i), as T, each computed from its index in the whole, so that the bits do
/// not depend on the layout.
template <class T, class F>
static Tensor sequence(int64_t n, const TensorOptions& options, const F& f) {
  Tensor tensor = empty({n}, options);
  if (!has_memory(tensor)) return tensor;
  const MemoryBlock block = tensor.block();
  const int64_t first = tensor.box().offset[0], count = block.shape[0];
  std::vector<T> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count && counts_here(options.sharding); ++i) {
    values[static_cast<size_t>(i)] = f(first + i);
  }
  constexpr DType kFrom = std::is_same_v<T, double> ? DType::f64 : DType::i64;
  copy(block, dense_block(values.data(), kFrom, {count}));
  return tensor;
}

static void check_numbers(const char* what, std::initializer_list<double> numbers) {
  for (double number : numbers) {
    if (!std::isfinite(number)) fail(what, ": a number is ", number, ", expected finite ones");
  }
}

/// Compares integers of 64 bits, whose doubles may be equal though they are not.
static bool is_less(const Number& a, const Number& b) {
  if (a.value != b.value) return a.value < b.value;
  return static_cast<uint64_t>(a.bits) < static_cast<uint64_t>(b.bits);
}

/// Integers modulo 2^64, of which all are within the range of the dtype.
static Tensor integers(Number start, Number stop, Number step, const TensorOptions& options) {
  const bool rises = step.value > 0;
  const auto first = static_cast<uint64_t>(start.bits), by = static_cast<uint64_t>(step.bits);
  const auto span =
      rises ? static_cast<uint64_t>(stop.bits) - first : first - static_cast<uint64_t>(stop.bits);
  const bool is_empty = !(rises ? is_less(start, stop) : is_less(stop, start));
  const uint64_t before = is_empty ? 0 : (span - 1) / (rises ? by : 0 - by);
  if (!is_empty && options.dtype != DType::boolean) {
    const uint64_t last = first + before * by;
    const bool is_negative = start.value + static_cast<double>(before) * step.value < 0;
    check_holds("arange", options.dtype, start);
    check_holds("arange", options.dtype,
                is_negative ? Number(static_cast<int64_t>(last)) : Number(last));
  }
  return sequence<int64_t>(
      is_empty ? 0 : static_cast<int64_t>(before + 1), options,
      [&](int64_t i) { return static_cast<int64_t>(first + static_cast<uint64_t>(i) * by); });
}

/// Returns the number as an integer: itself, or the whole number `value`.
static Number integer_of(const Number& number, double value) {
  if (number.kind != Number::Kind::floating) return number;
  if (std::abs(value) > 0x1p53) {
    fail("arange: a number is ", number.value, ", expected at most 2^53 in magnitude");
  }
  return static_cast<int64_t>(value);
}

Tensor arange(Number start, Number stop, Number step, const TensorOptions& options) {
  check_numbers("arange", {start.value, stop.value, step.value});
  if (step.value == 0) fail("arange: step is 0, expected another number");
  if (is_floating(options.dtype)) {
    const double count = std::ceil((stop.value - start.value) / step.value);
    return sequence<double>(count > 0 ? static_cast<int64_t>(count) : 0, options, [&](int64_t i) {
      return start.value + static_cast<double>(i) * step.value;
    });
  }
  for (const Number& number : {start, step}) {
    if (number.value == std::trunc(number.value)) continue;
    fail("arange: a number is ", number.value, ", expected whole ones for ", options.dtype);
  }
  // A stop between two integers ends the sequence as the one behind it does.
  const double end = step.value > 0 ? std::ceil(stop.value) : std::floor(stop.value);
  return integers(integer_of(start, start.value), integer_of(stop, end),
                  integer_of(step, step.value), options);
}

Tensor linspace(double start, double stop, int64_t n, bool endpoint, const TensorOptions& options) {
  check_numbers("linspace", {start, stop});
  if (n < 0) fail("linspace: number of elements must be at least 0, got ", n);
  const auto gaps = static_cast<double>(endpoint ? n - 1 : n);
  const double step = gaps > 0 ? (stop - start) / gaps : 0;
  return sequence<double>(n, options, [&](int64_t i) {
    const bool last = endpoint && n > 1 && i == n - 1;
    return last ? stop : start + static_cast<double>(i) * step;
  });
}

Tensor eye(int64_t n, int64_t m, int64_t diagonal, const TensorOptions& options) {
  check_shape("eye", {n, m});
  Tensor tensor = zeros({n, m}, options);
  if (!has_memory(tensor) || !counts_here(options.sharding)) return tensor;
  const Box box = tensor.box();
  // Local rows of the first element of the diagonal and after the last one.
  const int64_t shift = box.offset[0] + diagonal - box.offset[1];
  const int64_t first = std::max<int64_t>(0, -shift);
  const int64_t last = std::min(box.shape[0], box.shape[1] - shift);
  if (last <= first) return tensor;
  MemoryBlock ones = tensor.block();
  const int64_t start = first * ones.strides[0] + (first + shift) * ones.strides[1];
  ones.data = ones.as<char>() + start * static_cast<int64_t>(size_of(ones.dtype));
  ones.strides = {ones.strides[0] + ones.strides[1]};
  ones.shape = {last - first};
  fill(ones, 1);
  return tensor;
}

}  // namespace weft
