// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/factories.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/engine/engine.h"
#include "ops/engine/tensor_body.h"
#include "ops/promotion.h"
#include "src/device/cuda/runtime.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/random/random.h"
#include "weft/ops/shapes.h"

namespace weft {

void check_shape(const char* what, const Shape& shape) {
  for (int64_t size : shape) {
    if (size < 0) fail(what, ": shape is ", shape, ", expected sizes of at least 0");
  }
}

static Tensor made(const char* what, const Shape& shape, const TensorOptions& options) {
  check_shape(what, shape);
  return new_tensor(layout_of(options.sharding, shape, options.dtype), options.device);
}

Tensor empty(const Shape& shape, const TensorOptions& options) {
  return made("empty", shape, options);
}

/// Throws if `a` requires a gradient and recording is enabled: these ops are not recorded.
static void check_unrecorded(const char* what, const char* role, const Tensor& a) {
  if (!a.requires_grad() || !Context::current().grad_enabled) return;
  fail(what, ": the tensor ", a.shape(), role,
       " requires a gradient, expected none of what changes; detach() it, or use NoGrad");
}

static bool has_elements(const Tensor& a) { return a.device().kind != DeviceKind::meta; }

static bool counts_here(const Tensor& a) { return !a.is_sharded() || counts_here(a.sharding()); }

/// Throws std::invalid_argument when a whole number is outside the range of an integer dtype.
static void check_in_range(const char* what, DType dtype, const Number& number) {
  if (holds(dtype, number)) return;
  const uint64_t most = ~uint64_t{0} >> (64 - 8 * size_of(dtype) + (is_unsigned(dtype) ? 0 : 1));
  const std::string least = is_unsigned(dtype) ? "0" : concat("-", most + 1);
  fail(what, ": value is ", number.value, ", expected ", least, " to ", most, " for ", dtype);
}

static void fill_as(const char* what, const Tensor& a, const Number& value) {
  check_tensor(what, a);
  check_unrecorded(what, "", a);
  check_changeable(what, a);
  if (value.kind == Number::Kind::complex && !is_complex(a.dtype())) {
    fail(what, ": value is complex, expected a real number for ", a.dtype());
  }
  if (!is_floating(a.dtype()) && a.dtype() != DType::boolean) {
    if (value.value != std::trunc(value.value) || std::isinf(value.value)) {
      fail(what, ": value is ", value.value, ", expected a whole number for ", a.dtype());
    }
    check_in_range(what, a.dtype(), value);
  }
  if (has_elements(a)) fill(a.block(), counts_here(a) ? value : Number(0));
  changed(a);
}

void fill_(const Tensor& a, const Number& value) { fill_as("fill_", a, value); }

static Tensor filled(const char* what, const Shape& shape, const Number& value,
                     const TensorOptions& options) {
  Tensor tensor = made(what, shape, options);
  fill_as(what, tensor, value);
  return tensor;
}

Tensor full(const Shape& shape, const Number& value, const TensorOptions& options) {
  return filled("full", shape, value, options);
}
Tensor zeros(const Shape& shape, const TensorOptions& options) {
  return filled("zeros", shape, 0, options);
}
Tensor ones(const Shape& shape, const TensorOptions& options) {
  return filled("ones", shape, 1, options);
}

static Tensor full_like(const Tensor& a, double value) {
  Tensor tensor = new_tensor(layout_of(a), a.device());
  fill_(tensor, value);
  return tensor;
}

Tensor zeros_like(const Tensor& a) { return full_like(a, 0); }
Tensor ones_like(const Tensor& a) { return full_like(a, 1); }

Tensor arange(int64_t n, const TensorOptions& options) {
  if (cuts_inside(options)) return redistributed(arange(n, uncut(options)), options.sharding);
  Tensor tensor = made("arange", {n}, options);
  if (has_elements(tensor) && !counts_here(tensor)) {
    fill(tensor.block(), 0);
  } else if (has_elements(tensor)) {
    fill_range(tensor.block(), tensor.box().offset[0]);
  }
  return tensor;
}

Tensor number_like(const Tensor& a, const Number& number) {
  const DType dtype = promote(a.dtype(), number);
  if (!is_floating(dtype)) check_holds("promotion", dtype, number);
  return full({}, number, options_next_to(a, dtype));
}

Tensor from_values(const void* values, size_t count, DType dtype, const Shape& shape,
                   const TensorOptions& options) {
  if (static_cast<int64_t>(count) != shape.product()) {
    fail("from_values: number of values is ", count, ", expected ", shape.product(),
         ", the elements of ", shape);
  }
  Tensor tensor = made("from_values", shape, options);
  if (!has_elements(tensor)) return tensor;
  const Ref<Layout> parts = in_factors(layout_of(tensor));
  copy(divided(tensor.block(), parts->box.shape),
       dense_block(const_cast<void*>(values), dtype, parts->shape).part(parts->box));
  return tensor;
}

NestedNumbers::NestedNumbers(std::initializer_list<NestedNumbers> list) {
  shape.push_back(static_cast<int64_t>(list.size()));
  if (list.size() == 0) return;
  const NestedNumbers& first = *list.begin();
  for (int64_t size : first.shape) shape.push_back(size);
  kind = first.kind;
  for (const NestedNumbers& each : list) {
    if (!(each.shape == first.shape)) {
      fail("of: shape of a list is ", each.shape, ", expected ", first.shape,
           ", as the first one of its level");
    }
    values.insert(values.end(), each.values.begin(), each.values.end());
    kind = std::max(kind, each.kind);
  }
}

Tensor Tensor::of(const NestedNumbers& numbers) {
  if (numbers.kind == Number::Kind::floating) {
    std::vector<double> values;
    for (const Number& number : numbers.values) values.push_back(number.value);
    return from_values(values, numbers.shape, {.dtype = f32});
  }
  std::vector<int64_t> values;
  for (const Number& number : numbers.values) values.push_back(number.bits);
  const DType dtype = numbers.kind == Number::Kind::integer ? i64 : boolean;
  return from_values(values, numbers.shape, {.dtype = dtype});
}

/// Fills with values drawn from the distribution that `distribution` returns.
template <class F>
static void fill_drawn(const char* what, const Tensor& a, const F& distribution) {
  if (a.is_sharded() && a.sharding().has_partial()) {
    fail(what, ": the tensor is laid out as ", a.sharding(), ", expected no Partial");
  }
  RandomState& random = Context::current().random;
  if (has_elements(a)) {
    const Ref<Layout> parts = in_factors(layout_of(a));
    const MemoryBlock block = divided(a.block(), parts->box.shape);
    fill_random(block, parts->box, parts->shape, random, distribution());
  }
  ++random.stream;
}

template <class F> static void draw_into(const char* what, const Tensor& a, const F& distribution) {
  check_tensor(what, a);
  check_unrecorded(what, "", a);
  check_changeable(what, a);
  if (!is_floating(a.dtype()) || is_complex(a.dtype())) {
    fail(what, ": dtype is ", a.dtype(), ", expected a floating one");
  }
  fill_drawn(what, a, distribution);
  changed(a);
}

void uniform_(const Tensor& a, double low, double high) {
  draw_into("uniform_", a, [&] { return uniform_in(low, high, a.dtype()); });
}

void normal_(const Tensor& a, double mean, double deviation) {
  draw_into("normal_", a, [&] { return normal_of(mean, deviation); });
}

Tensor randint(const Shape& shape, int64_t low, int64_t high, const TensorOptions& options) {
  if (is_floating(options.dtype))
    fail("randint: dtype is ", options.dtype, ", expected an integer one");
  const auto [least, end] = options.dtype == boolean ? IntegerRange{0, 2} : range_of(options.dtype);
  if (static_cast<double>(low) < least || static_cast<double>(high) > end) {
    fail("randint: low and high are ", low, " and ", high, ", expected numbers that ",
         options.dtype, " holds");
  }
  Tensor tensor = made("randint", shape, options);
  fill_drawn("randint", tensor, [&] { return integers_in(low, high); });
  return tensor;
}

Tensor uniform(const Shape& shape, double low, double high, const TensorOptions& options) {
  Tensor tensor = made("uniform", shape, options);
  uniform_(tensor, low, high);
  return tensor;
}

Tensor normal(const Shape& shape, double mean, double deviation, const TensorOptions& options) {
  Tensor tensor = made("normal", shape, options);
  normal_(tensor, mean, deviation);
  return tensor;
}

void copy_(const Tensor& to, const Tensor& from) {
  check_tensor("copy_", to, from);
  check_unrecorded("copy_", "", to);
  check_changeable("copy_", to);
  check_unrecorded("copy_", " that is copied", from);
  if (!(to.shape() == from.shape())) {
    if (!broadcasts_to(from.shape(), to.shape())) {
      fail("copy_: source is ", from.shape(), ", expected one that broadcasts to ", to.shape());
    }
    return copy_(to, expand(from, to.shape()));
  }
  if ((to.device().kind == DeviceKind::meta) != (from.device().kind == DeviceKind::meta)) {
    fail("copy_: source ", from.shape(), " is on ", from.device(), " and the destination on ",
         to.device(),
         ", expected both or none on meta; a parameter has memory after materialize()");
  }
  if (to.is_sharded() != from.is_sharded()) {
    fail("copy_: one of the tensors ", to.shape(),
         " has no mesh, expected both or none over a mesh");
  }
  Tensor source = from;
  if (to.is_sharded()) {
    source = moved_to(from, layout_of(to.sharding(), from.shape(), from.dtype()));
  }
  if (has_elements(to)) {
    if (is_disturbed(source.block(), to.block())) source = snapshot_of(source.block());
    copy(to.block(), source.block());
  }
  changed(to);
}

void transfer_(const Tensor& to, const Tensor& from) {
  check_tensor("transfer_", to, from);
  check_changeable("transfer_", to);
  if (to.device() == from.device()) return copy_(to, from);
  const MemoryBlock out = to.block(), in = from.block();
  if (!(out.shape == in.shape)) {
    fail("transfer_: source is ", in.shape, ", expected ", out.shape, ", the destination's shape");
  }
  if (!out.is_dense() || !in.is_dense()) {
    fail("transfer_: the ", out.is_dense() ? "source " : "destination ", out.shape,
         " has strides, expected a dense one");
  }
  const DeviceKind a = out.device.kind, b = in.device.kind;
  const bool with_host = (a == DeviceKind::cpu && b == DeviceKind::cuda) ||
                         (a == DeviceKind::cuda && b == DeviceKind::cpu);
  if (!with_host) {
    fail("transfer_: devices are ", in.device, " and ", out.device,
         ", expected a GPU and the host");
  }
  if (cuda::kWithCuda) {
    cuda::transfer(out, in);
  } else {
    copy(out, in);
  }
  changed(to);
}

/// Returns `n` numbers f(i), as T, each computed from its index in the whole, so that the bits do
/// not depend on the layout.
template <class T, class F>
static Tensor sequence(int64_t n, const TensorOptions& options, const F& f) {
  if (cuts_inside(options))
    return redistributed(sequence<T>(n, uncut(options), f), options.sharding);
  Tensor tensor = empty({n}, options);
  if (!has_elements(tensor)) return tensor;
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

static void check_real_dtype(const char* what, DType dtype) {
  if (!is_complex(dtype)) return;
  fail(what, ": dtype is ", dtype, ", expected a real one; cast the result");
}

static void check_numbers(const char* what, std::initializer_list<double> numbers) {
  for (double number : numbers) {
    if (!std::isfinite(number)) fail(what, ": a number is ", number, ", expected finite ones");
  }
}

/// Throws unless 64 bits hold the number of elements.
static void check_length(const Number& start, const Number& stop, const Number& step,
                         double count) {
  if (count < 0x1p63) return;
  fail("arange: number of elements from ", start.value, " to ", stop.value, " by ", step.value,
       " is ", count, ", expected below 2^63");
}

__extension__ typedef __int128 Wide;

/// An integer of 64 bits, with or without sign.
static Wide as_wide(const Number& number) {
  return number.value < 0 ? Wide{number.bits} : Wide{static_cast<uint64_t>(number.bits)};
}

/// Integers, of which all are within the range of the dtype.
static Tensor integers(const Number& start, const Number& stop, const Number& step,
                       const TensorOptions& options) {
  const Wide first = as_wide(start), gap = as_wide(stop) - first, by = as_wide(step);
  const Wide count = (gap < 0) == (by < 0) ? gap / by + (gap % by != 0) : 0;
  check_length(start, stop, step, static_cast<double>(count));
  if (count > 0 && options.dtype != DType::boolean) {
    const Wide last = first + (count - 1) * by;
    check_in_range("arange", options.dtype, start);
    check_in_range(
        "arange", options.dtype,
        last < 0 ? Number(static_cast<int64_t>(last)) : Number(static_cast<uint64_t>(last)));
  }
  return sequence<int64_t>(static_cast<int64_t>(count), options,
                           [&](int64_t i) { return static_cast<int64_t>(first + i * by); });
}

/// Returns the number as an integer: itself, or the whole number `value`.
static Number integer_of(const Number& number, double value) {
  if (number.kind != Number::Kind::floating) return number;
  if (std::abs(value) > 0x1p53) {
    fail("arange: a number is ", number.value, ", expected at most 2^53 in magnitude");
  }
  return static_cast<int64_t>(value);
}

Tensor arange(const Number& start, const Number& stop, const Number& step,
              const TensorOptions& options) {
  check_real_dtype("arange", options.dtype);
  for (const Number& number : {start, stop, step}) {
    if (number.kind != Number::Kind::complex) continue;
    fail("arange: a number is complex, expected real ones");
  }
  check_numbers("arange", {start.value, stop.value, step.value});
  if (step.value == 0) fail("arange: step is 0, expected another number");
  if (is_floating(options.dtype)) {
    const double count = std::ceil((stop.value - start.value) / step.value);
    check_length(start, stop, step, count);
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
  check_real_dtype("linspace", options.dtype);
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
  if (cuts_inside(options)) {
    return redistributed(eye(n, m, diagonal, uncut(options)), options.sharding);
  }
  const Tensor tensor = zeros({n, m}, options);
  if (!counts_here(options.sharding)) return tensor;
  const Dims at = tensor.box().offset;
  fill_(weft::diagonal(tensor.local(), at[0] + diagonal - at[1]), 1);
  return tensor;
}

}  // namespace weft
