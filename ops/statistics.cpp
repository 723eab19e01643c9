// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/complex.h"
#include "ops/dims.h"
#include "ops/promotion.h"
#include "ops/sorting.h"
#include "ops/take.h"
#include "weft/linalg.h"
#include "weft/ops.h"

namespace weft {

// Elements at positions of the sorted rows: `sorted_at` finds them without sorting across ranks.

static constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

/// `positions` are i64 and broadcast to the shape of `a`, but along `dim`.
static ValuesAndIndices at_positions(const Tensor& a, const Tensor& positions, int dim) {
  const Shape shape = with_size(a.shape(), dim, positions.size(dim));
  const Tensors found = sorted_at(a, expand(positions, shape), dim);
  return {found[0], found[1]};
}

/// A tensor of numbers along `dim`, equal on all ranks, that broadcasts to `a`.
static Tensor along(const Tensor& a, int dim, const std::vector<double>& numbers, DType dtype) {
  const auto count = static_cast<int64_t>(numbers.size());
  return from_values(numbers, ones_but(a.ndim(), dim, count), options_next_to(a, dtype));
}

/// The number of elements of each row that are not NaN; they come first in order.
static Tensor numbers_of(const Tensor& a, int dim) {
  return sum(logical_not(isnan(a)), {dim}, true);
}

ValuesAndIndices kthvalue(const Tensor& a, int64_t k, int dim, bool keepdims) {
  check_tensor("kthvalue", a);
  if (a.ndim() == 0) return kthvalue(unsqueeze(a, 0), k, dim, false);
  const int at = normalized_dim("kthvalue", dim, a.ndim());
  if (k < 1 || k > a.size(at)) {
    fail("kthvalue: k is ", k, ", expected 1 to ", a.size(at), ", the size of dim ", at);
  }
  const Tensor position = along(a, at, {static_cast<double>(k - 1)}, DType::i64);
  return without_dim(at_positions(a, position, at), at, keepdims);
}

ValuesAndIndices median(const Tensor& a, int dim, bool keepdims) {
  check_tensor("median", a);
  if (a.ndim() == 0) return median(unsqueeze(a, 0), dim, false);
  const int at = filled_dim("median", a, dim);
  const int64_t size = a.size(at);
  if (!is_floating(a.dtype())) return kthvalue(a, (size + 1) / 2, at, keepdims);
  // The first NaN of a row is the first behind its numbers.
  const Tensor numbers = numbers_of(a, at);
  const Tensor middle = along(a, at, {static_cast<double>((size - 1) / 2)}, DType::i64);
  const Tensor position = where(less(numbers, Number(size)), numbers, middle);
  return without_dim(at_positions(a, position, at), at, keepdims);
}

ValuesAndIndices nanmedian(const Tensor& a, int dim, bool keepdims) {
  check_tensor("nanmedian", a);
  if (a.ndim() == 0 || !is_floating(a.dtype())) return median(a, dim, keepdims);
  const int at = filled_dim("nanmedian", a, dim);
  const Tensor last = clip(sub(numbers_of(a, at), 1), 0, std::nullopt);
  const Tensor position = floor_divide(last, along(a, at, {2}, DType::i64));
  return without_dim(at_positions(a, position, at), at, keepdims);
}

static Tensor of_all(const char* what, ValuesAndIndices (*along)(const Tensor&, int, bool),
                     const Tensor& a) {
  check_tensor(what, a);
  return a.numel() == 0 ? full({}, kNotANumber) : along(flatten(a), 0, false).values;
}
Tensor median(const Tensor& a) { return of_all("median", median, a); }
Tensor nanmedian(const Tensor& a) { return of_all("nanmedian", nanmedian, a); }

/// Places (f64) between two positions as the interpolation has it.
static Tensor interpolated(const Tensor& places, std::string_view interpolation) {
  if (interpolation == "lower") return floor(places);
  if (interpolation == "higher") return ceil(places);
  if (interpolation == "nearest") return round(places);
  if (interpolation == "midpoint") return mul(add(floor(places), ceil(places)), 0.5);
  if (interpolation == "linear") return places;
  fail("quantile: interpolation is '", interpolation,
       "', expected 'linear', 'lower', 'higher', 'nearest' or 'midpoint'");
}

/// Elements at places (f64) of the sorted rows, interpolated between neighbours.
static Tensor at_places(const Tensor& a, const Tensor& exact, int dim,
                        std::string_view interpolation) {
  const Tensor places = interpolated(exact, interpolation);
  if (interpolation != "linear" && interpolation != "midpoint") {
    return at_positions(a, cast(places, DType::i64), dim).values;
  }
  const Tensor below = floor(places);
  const int64_t count = places.size(dim);
  const Tensor positions = cast(cat({below, ceil(places)}, dim), DType::i64);
  const Tensor found = at_positions(a, positions, dim).values;
  const Tensor low = slice(found, dim, 0, count), high = slice(found, dim, count, 2 * count);
  return lerp(low, high, cast(sub(places, below), a.dtype()));
}

/// Quantiles along `dim`, which keeps one element for each of q.
static Tensor quantiles_along(const char* what, const Tensor& a, const std::vector<double>& q,
                              int dim, std::string_view interpolation, bool skips_nan) {
  const int at = filled_dim(what, a, dim);
  if (!skips_nan) {
    std::vector<double> places;
    for (const double one : q) places.push_back(one * static_cast<double>(a.size(at) - 1));
    const Tensor made = at_places(a, along(a, at, places, DType::f64), at, interpolation);
    return masked_fill(made, any(isnan(a), {at}, true), kNotANumber);
  }
  const Tensor last = clip(sub(numbers_of(a, at), 1), 0, std::nullopt);
  const Tensor places = mul(cast(last, DType::f64), along(a, at, q, DType::f64));
  return at_places(a, places, at, interpolation);
}

static Tensor quantiles_of(const char* what, const Tensor& a, const std::vector<double>& q,
                           std::optional<int> dim, bool keepdims, std::string_view interpolation,
                           bool skips_nan) {
  check_tensor(what, a);
  if (!is_floating(a.dtype())) fail(what, ": dtype is ", a.dtype(), ", expected a floating one");
  for (const double one : q) {
    if (!(one >= 0 && one <= 1)) fail(what, ": q is ", one, ", expected one in [0, 1]");
  }
  if (!dim || a.ndim() == 0) {
    const Tensor flat = reshape(a, {a.numel()});
    const Tensor made = quantiles_along(what, flat, q, 0, interpolation, skips_nan);
    return keepdims ? reshape(made, ones_but(a.ndim() + 1, 0, made.size(0))) : made;
  }
  const int at = normalized_dim(what, *dim, a.ndim());
  const Tensor made = quantiles_along(what, a, q, at, interpolation, skips_nan);
  const Tensor first = moveaxis(made, {at}, {0});
  return keepdims ? unsqueeze(first, at + 1) : first;
}

Tensor quantile(const Tensor& a, const std::vector<double>& q, std::optional<int> dim,
                bool keepdims, std::string_view interpolation) {
  return quantiles_of("quantile", a, q, dim, keepdims, interpolation, false);
}
Tensor nanquantile(const Tensor& a, const std::vector<double>& q, std::optional<int> dim,
                   bool keepdims, std::string_view interpolation) {
  return quantiles_of("nanquantile", a, q, dim, keepdims, interpolation, true);
}
Tensor quantile(const Tensor& a, double q, std::optional<int> dim, bool keepdims,
                std::string_view interpolation) {
  return squeeze(quantile(a, std::vector<double>{q}, dim, keepdims, interpolation), 0);
}
Tensor nanquantile(const Tensor& a, double q, std::optional<int> dim, bool keepdims,
                   std::string_view interpolation) {
  return squeeze(nanquantile(a, std::vector<double>{q}, dim, keepdims, interpolation), 0);
}

ValuesAndIndices mode(const Tensor& a, int dim, bool keepdims) {
  check_tensor("mode", a);
  if (a.ndim() == 0) return mode(unsqueeze(a, 0), dim, false);
  const int at = filled_dim("mode", a, dim);
  const int64_t n = a.size(at);
  const Tensor order = argsort(a.detach(), at);
  const Tensor sorted = take_along_dim(a.detach(), order, at);
  const Tensor differs = not_equal(slice(sorted, at, 1, n), slice(sorted, at, 0, n - 1));
  const Tensor run = pad(cumulative_sum(differs, at), at, 1, 0);
  const Tensor lengths = add_along_dim(ones_like(run), run, at, n);
  const Tensor last =
      sub(take_along_dim(cumulative_sum(lengths, at), argmax(lengths, at, true), at), 1);
  const Tensor indices = take_along_dim(order, last, at);
  const Tensor values = take_along_dim(a, indices, at);
  return without_dim({values, indices}, at, keepdims);
}

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
  const Tensor x = is_complex(a) ? abs(a) : as_floating("vector_norm", a);
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
  if (std::abs(order) == 2) {
    const bool is_half = a.dtype() == DType::bf16 || a.dtype() == DType::f16;
    const Tensor s = linalg::svdvals(is_half ? cast(a, DType::f32) : a);
    const Tensor value = (order > 0 ? max : min)(s, {-1}, keepdims);
    return as_dtype(keepdims ? unsqueeze(value, -1) : value, is_half ? a.dtype() : s.dtype());
  }
  if (std::abs(order) != 1 && !std::isinf(order)) {
    fail("matrix_norm: the order is ", order, ", expected 'fro', 'nuc', 1, -1, 2, -2, inf or -inf");
  }
  const Tensor sums = sum(abs(a), {std::isinf(order) ? -1 : -2}, true);
  const Tensor extreme = (order > 0 ? max : min)(sums, {-2, -1}, keepdims);
  return is_floating(extreme.dtype()) ? extreme : cast(extreme, DType::f32);
}

Tensor nanmean(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  const Tensor counts = sum(logical_not(isnan(a)), dims, keepdims);
  const Tensor total = nansum(a, dims, keepdims);
  return div(total, cast(counts, is_floating(total.dtype()) ? total.dtype() : DType::f32));
}

}  // namespace weft
