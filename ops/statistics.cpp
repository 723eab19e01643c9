// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "ops/engine/tensor_body.h"
#include "ops/promotion.h"
#include "weft/error.h"
#include "weft/ops/logic.h"
#include "weft/ops/powers.h"
#include "weft/ops/reductions.h"

namespace weft {

/// Differences from the mean, in f32 at least, and the number that divides the sum of squares.
struct Spread {
  Tensor differences;
  double count;
};

static Spread spread_of(const char* what, const Tensor& a, const std::vector<int>& dims,
                        double correction) {
  check_tensor(what, a);
  double count = dims.empty() ? static_cast<double>(a.numel()) : 1;
  for (const int dim : dims) {
    count *= static_cast<double>(a.size(normalized_dim(what, dim, a.ndim())));
  }
  const Tensor wide = cast(a, a.dtype() == DType::f64 ? DType::f64 : DType::f32);
  return {sub(wide, mean(wide, dims, true)), std::max(count - correction, 0.0)};
}

/// Returns the result in the dtype of `a` if that is floating.
static Tensor in_dtype_of(const Tensor& a, const Tensor& result) {
  return is_floating(a.dtype()) ? cast(result, a.dtype()) : result;
}

Tensor var(const Tensor& a, const std::vector<int>& dims, double correction, bool keepdims) {
  const Spread found = spread_of("var", a, dims, correction);
  return in_dtype_of(a, div(sum(square(found.differences), dims, keepdims), found.count));
}

Tensor stddev(const Tensor& a, const std::vector<int>& dims, double correction, bool keepdims) {
  const Spread found = spread_of("std", a, dims, correction);
  return in_dtype_of(a, div(norm(found.differences, dims, keepdims), std::sqrt(found.count)));
}

Tensor count_nonzero(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  check_tensor("count_nonzero", a);
  return sum(cast(a, DType::boolean), dims, keepdims);
}

/// a^exponent for a of at least 0, with the gradient 0 where a is 0 and the power is not smooth.
static Tensor power_from_zero(const Tensor& a, double exponent) {
  const Tensor x = abs(a);  // adds up a Partial, once for both uses
  const Tensor is_zero = equal(x, next_to(x, 0));
  const Tensor safe = where(is_zero, next_to(x, 1), x);
  return where(is_zero, next_to(x, 0), pow(safe, exponent));
}

Tensor vector_norm(const Tensor& a, double order, const std::vector<int>& dims, bool keepdims) {
  if (order == 2) return norm(a, dims, keepdims);
  const Tensor x = as_floating("vector_norm", a);
  if (order == 0) return cast(count_nonzero(x, dims, keepdims), x.dtype());
  const Tensor magnitudes = abs(x);
  if (std::isinf(order)) return (order > 0 ? max : min)(magnitudes, dims, keepdims);
  if (order == 1) return sum(magnitudes, dims, keepdims);
  const bool is_steep = 0 < order && order < 1;
  const Tensor powers = is_steep ? power_from_zero(magnitudes, order) : pow(magnitudes, order);
  const Tensor total = sum(powers, dims, keepdims);
  return order > 0 ? power_from_zero(total, 1 / order) : pow(total, 1 / order);
}

static void check_matrix_norm(const Tensor& a) {
  check_tensor("matrix_norm", a);
  if (a.ndim() < 2) fail("matrix_norm: the tensor is ", a.shape(), ", expected at least two dims");
}

Tensor matrix_norm(const Tensor& a, bool keepdims) {
  check_matrix_norm(a);
  return norm(a, {-2, -1}, keepdims);
}

Tensor matrix_norm(const Tensor& a, double order, bool keepdims) {
  check_matrix_norm(a);
  if (std::abs(order) != 1 && !std::isinf(order)) {
    fail("matrix_norm: the order is ", order, ", expected 'fro', 1, -1, inf or -inf");
  }
  const Tensor sums = sum(abs(a), {std::isinf(order) ? -1 : -2}, true);
  const Tensor extreme = (order > 0 ? max : min)(sums, {-2, -1}, keepdims);
  return cast(extreme, is_floating(a.dtype()) ? a.dtype() : DType::f32);
}

Tensor nanmean(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  const Tensor counts = sum(logical_not(isnan(a)), dims, keepdims);
  const Tensor total = nansum(a, dims, keepdims);
  return div(total, cast(counts, is_floating(total.dtype()) ? total.dtype() : DType::f32));
}

}  // namespace weft
