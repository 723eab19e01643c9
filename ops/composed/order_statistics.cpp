// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/engine/tensor_body.h"
#include "ops/promotion.h"
#include "ops/take.h"
#include "weft/error.h"
#include "weft/ops/along_dim.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/parts.h"
#include "weft/ops/reductions.h"
#include "weft/ops/shapes.h"
#include "weft/ops/statistics.h"

namespace weft {

ValuesAndIndices mode(const Tensor& a, int dim, bool keepdims) {
  check_tensor("mode", a);
  if (a.ndim() == 0) return mode(unsqueeze(a, 0), dim, false);
  const int at = normalized_dim("mode", dim, a.ndim());
  const int64_t n = a.size(at);
  if (n == 0) fail("mode: size of dim ", at, " is 0, expected at least 1");
  const Tensor order = argsort(a.detach(), at);
  const Tensor sorted = take_along_dim(a.detach(), order, at);
  const Tensor differs = not_equal(slice(sorted, at, 1, n), slice(sorted, at, 0, n - 1));
  const Tensor run = pad(cumulative_sum(differs, at), at, 1, 0);
  const Tensor lengths = add_along_dim(ones_like(run), run, at, n);
  const Tensor last =
      sub(take_along_dim(cumulative_sum(lengths, at), argmax(lengths, at, true), at), 1);
  const Tensor indices = take_along_dim(order, last, at);
  const Tensor values = take_along_dim(a, indices, at);
  if (keepdims) return {values, indices};
  return {squeeze(values, at), squeeze(indices, at)};
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
  const bool is_long = r > static_cast<int64_t>(kMost);
  const auto n = static_cast<double>(a.size(0));
  double count = 1;
  if (r < 0) fail("combinations: r is ", r, ", expected at least 0");
  for (int64_t i = 0; !is_long && i < r && count > 0 && count <= kMost; ++i) {
    const auto step = static_cast<double>(i);
    count *= std::max(0.0, with_replacement ? n + step : n - step) / (step + 1);
  }
  if (count > kMost || is_long) {
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
