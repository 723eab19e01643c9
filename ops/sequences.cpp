// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "ops/engine/layouts.h"
#include "ops/promotion.h"
#include "src/kernels/copy/copy.h"
#include "weft/error.h"
#include "weft/ops/factories.h"

namespace weft {

static bool has_memory(const Tensor& a) { return a.device().kind != DeviceKind::meta; }

/// Returns `n` numbers f(i), each computed from its index in the whole, so that the bits do not
/// depend on the layout.
template <class F>
static Tensor sequence(int64_t n, const TensorOptions& options, const F& f) {
  Tensor tensor = empty({n}, options);
  if (!has_memory(tensor)) return tensor;
  const MemoryBlock block = tensor.block();
  const int64_t first = tensor.box().offset[0], count = block.shape[0];
  std::vector<double> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count && counts_here(options.sharding); ++i) {
    values[static_cast<size_t>(i)] = f(first + i);
  }
  copy(block, dense_block(values.data(), DType::f64, {count}));
  return tensor;
}

static void check_numbers(const char* what, std::initializer_list<double> numbers) {
  for (double number : numbers) {
    if (!std::isfinite(number)) fail(what, ": a number is ", number, ", expected finite ones");
  }
}

Tensor arange(double start, double stop, double step, const TensorOptions& options) {
  check_numbers("arange", {start, stop, step});
  if (step == 0) fail("arange: step is 0, expected another number");
  for (double number : {start, step}) {
    if (is_floating(options.dtype) || number == std::trunc(number)) continue;
    fail("arange: a number is ", number, ", expected whole ones for ", options.dtype);
  }
  const double count = std::ceil((stop - start) / step);
  if (!is_floating(options.dtype)) {
    for (double number : {start, stop}) {
      if (std::abs(number) > 0x1p53)
        fail("arange: a number is ", number, ", expected at most 2^53 in magnitude");
    }
    if (count > 0 && options.dtype != DType::boolean) {
      check_holds("arange", options.dtype, start);
      check_holds("arange", options.dtype, start + (count - 1) * step);
    }
  }
  return sequence(count > 0 ? static_cast<int64_t>(count) : 0, options,
                  [&](int64_t i) { return start + static_cast<double>(i) * step; });
}

Tensor linspace(double start, double stop, int64_t n, bool endpoint, const TensorOptions& options) {
  check_numbers("linspace", {start, stop});
  if (n < 0) fail("linspace: number of elements must be at least 0, got ", n);
  const auto gaps = static_cast<double>(endpoint ? n - 1 : n);
  const double step = gaps > 0 ? (stop - start) / gaps : 0;
  return sequence(n, options, [&](int64_t i) {
    const bool last = endpoint && n > 1 && i == n - 1;
    return last ? stop : start + static_cast<double>(i) * step;
  });
}

Tensor eye(int64_t n, int64_t m, int64_t diagonal, const TensorOptions& options) {
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
