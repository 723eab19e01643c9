// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "ops/composed/numbers.h"
#include "ops/engine/tensor_body.h"
#include "ops/take.h"
#include "weft/error.h"
#include "weft/ops/along_dim.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/logic.h"
#include "weft/ops/parts.h"
#include "weft/ops/pointwise.h"
#include "weft/ops/reductions.h"
#include "weft/ops/rounding.h"
#include "weft/ops/shapes.h"
#include "weft/ops/statistics.h"

namespace weft {

static int dim_with_elements(const char* what, const Tensor& a, int dim) {
  const int at = normalized_dim(what, dim, a.ndim());
  if (a.size(at) == 0) fail(what, ": size of dim ", at, " is 0, expected at least 1");
  return at;
}

static ValuesAndIndices taken(const Tensor& a, const Tensor& indices, int dim, bool keepdims) {
  const Tensor values = take_along_dim(a, indices, dim);
  if (keepdims) return {values, indices};
  return {squeeze(values, dim), squeeze(indices, dim)};
}

ValuesAndIndices mode(const Tensor& a, int dim, bool keepdims) {
  check_tensor("mode", a);
  if (a.ndim() == 0) return mode(unsqueeze(a, 0), dim, false);
  const int at = dim_with_elements("mode", a, dim);
  const int64_t n = a.size(at);
  const Tensor order = argsort(a.detach(), at);
  const Tensor sorted = take_along_dim(a.detach(), order, at);
  const Tensor differs = not_equal(slice(sorted, at, 1, n), slice(sorted, at, 0, n - 1));
  const Tensor run = pad(cumulative_sum(differs, at), at, 1, 0);
  const Tensor lengths = add_along_dim(ones_like(run), run, at, n);
  const Tensor last =
      sub(take_along_dim(cumulative_sum(lengths, at), argmax(lengths, at, true), at), 1);
  return taken(a, take_along_dim(order, last, at), at, keepdims);
}

/// How many elements along the dim are not NaN.
static Tensor counts_along(const Tensor& a, int dim) {
  return sum(cast(logical_not(isnan(a)), DType::i64), {dim}, true);
}

ValuesAndIndices nanmedian(const Tensor& a, int dim, bool keepdims) {
  check_tensor("nanmedian", a);
  if (a.ndim() == 0) return nanmedian(unsqueeze(a, 0), dim, false);
  const int at = dim_with_elements("nanmedian", a, dim);
  const Tensor counts = counts_along(a, at);
  const Tensor middle = clip(floor_divide(sub(counts, 1), number_like(counts, 2)), 0);
  return taken(a, take_along_dim(argsort(a, at), middle, at), at, keepdims);
}

Tensor nanmedian(const Tensor& a) {
  check_tensor("nanmedian", a);
  if (a.numel() == 0) return median(a);
  return nanmedian(reshape(a, {a.numel()}), 0).values;
}

/// The quantile at `place` (f64) of the elements sorted along the dim.
static Tensor between(const char* what, const Tensor& sorted, const Tensor& place, int dim,
                      std::string_view interpolation) {
  const auto at = [&](const Tensor& rounded) {
    return take_along_dim(sorted, cast(rounded, DType::i64), dim);
  };
  if (interpolation == "lower") return at(floor(place));
  if (interpolation == "higher") return at(ceil(place));
  if (interpolation == "nearest") return at(round(place));
  if (interpolation != "linear" && interpolation != "midpoint") {
    fail(what, ": interpolation is ", in_quotes(interpolation),
         ", expected linear, lower, higher, midpoint or nearest");
  }
  const Tensor low = at(floor(place)), high = at(ceil(place));
  if (interpolation == "midpoint") return lerp(low, high, 0.5);
  return lerp(low, high, cast(sub(place, floor(place)), sorted.dtype()));
}

static Tensor quantile_along(const char* what, const Tensor& a, double q, std::optional<int> dim,
                             bool keepdims, std::string_view interpolation, bool without_nan) {
  check_tensor(what, a);
  if (!(q >= 0 && q <= 1)) fail(what, ": q is ", q, ", expected 0 to 1");
  if (!is_floating(a.dtype())) fail(what, ": dtype is ", a.dtype(), ", expected a floating one");
  if (!dim || a.ndim() == 0) {
    const Tensor one =
        quantile_along(what, reshape(a, {a.numel()}), q, 0, false, interpolation, without_nan);
    return keepdims ? reshape(one, Shape::filled(a.ndim(), 1)) : one;
  }
  const int at = dim_with_elements(what, a, *dim);
  const Tensor valid = counts_along(a, at);
  const Tensor counts = without_nan ? valid : next_to(valid, a.size(at));
  const Tensor place = mul(cast(clip(sub(counts, 1), 0), DType::f64), q);
  const Tensor is_nan = without_nan ? equal(valid, 0) : less(valid, a.size(at));
  const Tensor places = expand(place, valid.shape());
  const Tensor made = masked_fill(between(what, sort(a, at), places, at, interpolation), is_nan,
                                  std::numeric_limits<double>::quiet_NaN());
  return keepdims ? made : squeeze(made, at);
}

Tensor quantile(const Tensor& a, double q, std::optional<int> dim, bool keepdims,
                std::string_view interpolation) {
  return quantile_along("quantile", a, q, dim, keepdims, interpolation, false);
}
Tensor nanquantile(const Tensor& a, double q, std::optional<int> dim, bool keepdims,
                   std::string_view interpolation) {
  return quantile_along("nanquantile", a, q, dim, keepdims, interpolation, true);
}

/// Appends the rest of each row of `r` indices below `n` to `rows`.
static void append_rows(std::vector<int64_t>& rows, std::vector<int64_t>& row, int64_t n, size_t r,
                        bool with_replacement) {
  if (row.size() == r) {
    rows.insert(rows.end(), row.begin(), row.end());
    return;
  }
  for (int64_t i = row.empty() ? 0 : row.back() + (with_replacement ? 0 : 1); i < n; ++i) {
    row.push_back(i);
    append_rows(rows, row, n, r, with_replacement);
    row.pop_back();
  }
}

Tensor combinations(const Tensor& a, int64_t r, bool with_replacement) {
  check_tensor("combinations", a);
  if (a.ndim() != 1) fail("combinations: tensor is ", a.shape(), ", expected one dim");
  constexpr double kMost = 1 << 26;
  const auto n = static_cast<double>(a.size(0));
  double count = 1;
  if (r < 0) fail("combinations: r is ", r, ", expected at least 0");
  for (int64_t i = 0; i < r && count > 0 && count <= kMost; ++i) {
    const auto step = static_cast<double>(i);
    count *= std::max(0.0, with_replacement ? n + step : n - step) / (step + 1);
  }
  if (count > kMost || r > static_cast<int64_t>(kMost)) {
    fail("combinations: r is ", r, " for ", a.size(0), " elements, expected at most ", kMost,
         " rows");
  }
  std::vector<int64_t> rows, row;
  if (r > 0 && count > 0) {
    append_rows(rows, row, a.size(0), static_cast<size_t>(r), with_replacement);
  }
  const auto total = static_cast<int64_t>(rows.size());
  const Tensor places = from_values(rows, {total}, options_next_to(a, DType::i64));
  return reshape(take(a, places, 0), {r > 0 ? total / r : 0, r});
}

}  // namespace weft
