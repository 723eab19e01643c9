// SPDX-License-Identifier: Apache-2.0
#include "ops/composed/cut_matrices.h"

#include <algorithm>
#include <cmath>

#include "ops/engine/tensor_body.h"
#include "ops/promotion.h"
#include "ops/take.h"
#include "weft/context.h"
#include "weft/ops.h"

namespace weft {

// Each rank has its rows of panels of columns, so that it receives rows of one panel at a time.

bool is_cut_by_rows(const Tensor& a) {
  if (!a.is_sharded() || a.ndim() != 2 || a.size(0) < 4 * kPanel) return false;
  if (a.device().kind == DeviceKind::meta) return false;
  if (a.requires_grad() && Context::current().grad_enabled) return false;
  const Sharding& sharding = a.sharding();
  bool is_cut = false;
  for (int axis = 0; axis < sharding.axes(); ++axis) {
    if (sharding[axis].is_replicate()) continue;
    if (!sharding[axis].is_shard() || sharding[axis].dim() != 0) return false;
    is_cut = is_cut || sharding.mesh().axis_size(axis) > 1;
  }
  return is_cut;
}

/// Rows from `first` to `last`, on all ranks.
static Tensor whole_rows(const Tensor& a, int64_t first, int64_t last) {
  return redistributed(slice(a, 0, first, last), Sharding(a.sharding().mesh(), {}));
}

/// Whether a row is in that range, as a column.
static Tensor rows_within(const Tensor& a, int64_t first, int64_t last) {
  const Tensor rows = unsqueeze(numbers_next_to(a, 0, a.size(0)), 1);
  return logical_and(greater_equal(rows, first), less(rows, last));
}

/// Writes rows from `first` to `last`, which all ranks have, into `a`.
static void set_rows(const Tensor& a, const Tensor& rows, int64_t first, int64_t last) {
  const Tensor apart = pad(rows, 0, first, a.size(0) - last);
  copy_(a, where(rows_within(a, first, last), apart, a));
}

static int64_t code_of(const Tensor& info) {
  return static_cast<int64_t>(info.full_tensor().item());
}

CholeskyFactor cholesky_of_rows(const Tensor& a) {
  const NoGrad no_grad;
  const int64_t n = a.size(0);
  const Tensor l = zeros_like(a);
  int64_t failed = 0;
  for (int64_t first = 0; first < n && failed == 0; first += kPanel) {
    const int64_t last = std::min(first + kPanel, n);
    Tensor panel = slice(a, 1, first, last);
    if (first > 0) {
      const Tensor before = slice(l, 1, 0, first);
      panel = sub(panel, matmul(before, t(whole_rows(before, first, last))));
    }
    const CholeskyFactor own = cholesky_factor(whole_rows(panel, first, last), false);
    if (const int64_t order = code_of(own.info); order != 0) failed = first + order;
    // x l^T = panel, for the rows of each rank.
    const Tensor below = t(solve_triangle(own.l, t(panel), false));
    copy_(slice(l, 1, first, last), where(rows_within(a, first, n), below, zeros_like(below)));
  }
  const Tensor info = full({}, failed, options_next_to(a, i32));
  if (failed != 0) return {mul(l, NAN), info};
  return {tril(l), info};
}

Tensor solve_triangle_of_rows(const Tensor& a, const Tensor& b, bool upper, bool transposed,
                              bool unit) {
  const NoGrad no_grad;
  const int64_t n = a.size(0), panels = (n + kPanel - 1) / kPanel;
  const Tensor left = mul(redistributed(b, a.sharding()), 1), x = zeros_like(left);
  const bool from_last = upper != transposed;
  for (int64_t i = 0; i < panels; ++i) {
    const int64_t first = (from_last ? panels - 1 - i : i) * kPanel;
    const int64_t last = std::min(first + kPanel, n);
    const Tensor columns = slice(a, 1, first, last);
    Tensor right = whole_rows(left, first, last);
    if (transposed) {
      // The other triangle is not read: it may have NaN.
      const Tensor solved = from_last ? rows_within(a, last, n) : rows_within(a, 0, first);
      right = sub(right, matmul(t(where(solved, columns, zeros_like(columns))), x));
    }
    const Tensor own =
        solve_triangle(whole_rows(columns, first, last), right, upper, transposed, unit);
    set_rows(x, own, first, last);
    if (!transposed) copy_(left, sub(left, matmul(columns, own)));
  }
  return x;
}

Tensor rows_at(const Tensor& a, const Tensor& order) {
  return take_rows(a, redistributed(order, a.sharding()));
}

LuFactor lu_of_rows(const Tensor& a) {
  const NoGrad no_grad;
  const int64_t n = a.size(0);
  Tensor lu = mul(a, 1), order = numbers_next_to(a, 0, n);
  int64_t failed = 0;
  for (int64_t first = 0; first < n; first += kPanel) {
    const int64_t last = std::min(first + kPanel, n);
    const LuFactor panel = lu_factor_of(whole_rows(slice(lu, 1, first, last), first, n));
    if (const int64_t code = code_of(panel.info); code != 0 && failed == 0) failed = first + code;
    const Tensor exchanged = cat({numbers_next_to(a, 0, first), add(panel.order, first)}, 0);
    lu = rows_at(lu, exchanged);
    order = take(order, exchanged, 0);
    set_rows(slice(lu, 1, first, last), panel.lu, first, n);
    if (last == n) break;
    const Tensor behind = slice(lu, 1, last, n);
    const Tensor own = slice(panel.lu, 0, 0, last - first);
    const Tensor rows = solve_triangle(own, whole_rows(behind, first, last), false, false, true);
    set_rows(behind, rows, first, last);
    const Tensor below = slice(lu, 1, first, last);
    const Tensor l = where(rows_within(a, last, n), below, zeros_like(below));
    copy_(behind, sub(behind, matmul(l, rows)));
  }
  return {lu, {}, order, full({}, failed, options_next_to(a, i32))};
}

}  // namespace weft
