// SPDX-License-Identifier: Apache-2.0
#include "ops/composed/cut_matrices.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/engine/tensor_body.h"
#include "ops/moved_parts.h"
#include "ops/promotion.h"
#include "ops/take.h"
#include "weft/context.h"
#include "weft/ops.h"

namespace weft {

bool is_cut(const Tensor& a) {
  if (!a.is_sharded() || a.ndim() != 2 || a.size(0) < 4 * kPanel) return false;
  if (a.device().kind == DeviceKind::meta) return false;
  const Sharding& sharding = a.sharding();
  bool is_cut = false;
  for (int axis = 0; axis < sharding.axes(); ++axis) {
    if (sharding[axis].is_replicate()) continue;
    if (!sharding[axis].is_shard()) return false;
    is_cut = is_cut || sharding.mesh().axis_size(axis) > 1;
  }
  return is_cut;
}

Sharding row_cuts(const Tensor& a) {
  const Sharding& sharding = a.sharding();
  std::vector<Placement> rows;
  bool are_rows = true;
  for (int axis = 0; axis < sharding.axes(); ++axis) {
    const Placement& placement = sharding[axis];
    rows.push_back(placement.is_shard() ? Placement(Shard(0)) : Placement(Replicate()));
    // Slices of rows of which an inner factor is cut would move.
    are_rows =
        are_rows && !(placement.is_shard() && (placement.dim() != 0 || placement.outer() > 1));
  }
  return are_rows ? sharding : Sharding(sharding.mesh(), Placements(rows));
}

Tensor cut_by_rows(const Tensor& a) { return redistributed(a, row_cuts(a)); }

namespace {

/// c += a b for tensors of one rank; c may be a view.
void add_product(const Tensor& c, const Tensor& a, const Tensor& b) {
  if (c.numel() > 0 && a.size(1) > 0) matmul_product().into(c, true, std::vector<Tensor>{a, b});
}

/// The rows of matrices that are cut as one is: this rank's, in ascending order.
class RowsOfCut {
 public:
  explicit RowsOfCut(const Tensor& a)
      : sharding_(a.sharding()),
        device_(a.device()),
        rows_(redistributed(numbers_next_to(a, 0, a.size(0)), a.sharding())
                  .local()
                  .to_vector<int64_t>()) {}

  /// This rank's rows from `first` to `last`, of the part of a matrix.
  Tensor part_of(const Tensor& part, int64_t first, int64_t last) const {
    return slice(part, 0, rows_before(first), rows_before(last));
  }

  /// Rows from `first` to `last` of a cut matrix, on all ranks.
  Tensor whole(const Tensor& a, int64_t first, int64_t last) const {
    return redistributed(slice(a, 0, first, last), Sharding(sharding_.mesh(), {})).local();
  }

  /// Writes this rank's rows of `whole`, rows from `first` on, into those of a part.
  void write(const Tensor& part, const Tensor& whole, int64_t first) const {
    const int64_t last = first + whole.size(0);
    const Tensor to = part_of(part, first, last);
    if (to.numel() == 0) return;
    std::vector<int64_t> from(rows_.begin() + rows_before(first),
                              rows_.begin() + rows_before(last));
    for (int64_t& row : from) row -= first;
    copy_(to, take(whole, indices(from), 0));
  }

  /// The tensor that each rank has, as one of the mesh.
  Tensor replicated(const Tensor& part) const {
    return relabeled(part, layout_of({sharding_.mesh(), {}}, part.shape(), part.dtype()));
  }

  /// The sum of each rank's tensor; of those of all ranks of the mesh, also of replicas.
  Tensor summed(const Tensor& part, bool of_replicas = false) const {
    std::vector<Placement> kinds;
    for (int axis = 0; axis < sharding_.axes(); ++axis) {
      const bool has_terms = of_replicas || sharding_[axis].is_shard();
      kinds.push_back(has_terms ? Placement(Partial()) : Placement(Replicate()));
    }
    const Sharding terms(sharding_.mesh(), Placements(kinds));
    const Tensor sum = relabeled(part, layout_of(terms, part.shape(), part.dtype()));
    return redistributed(sum, Sharding(sharding_.mesh(), {})).local();
  }

  /// Rows `wanted` of a cut matrix whose part is given, on all ranks.
  Tensor whole_at(const Tensor& part, const std::vector<int64_t>& wanted) const {
    std::vector<int64_t> from, to;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (const int64_t at = rows_before(wanted[i]); has(wanted[i])) {
        from.push_back(at), to.push_back(static_cast<int64_t>(i));
      }
    }
    Tensor found = zeros({static_cast<int64_t>(wanted.size()), part.size(1)},
                         options_next_to(part, part.dtype()));
    if (!from.empty()) found = index_copy(found, 0, indices(to), take(part, indices(from), 0));
    return summed(found);
  }

  /// Writes rows of `whole` into rows `places` of a part, where this rank has them.
  void write_at(const Tensor& part, const Tensor& whole, const std::vector<int64_t>& places) const {
    for (size_t i = 0; i < places.size(); ++i) {
      if (!has(places[i])) continue;
      const int64_t to = rows_before(places[i]), from = static_cast<int64_t>(i);
      copy_(slice(part, 0, to, to + 1), slice(whole, 0, from, from + 1));
    }
  }

  bool has(int64_t row) const { return std::binary_search(rows_.begin(), rows_.end(), row); }

  /// The number of this rank's rows that come before `row`.
  int64_t rows_before(int64_t row) const {
    return std::lower_bound(rows_.begin(), rows_.end(), row) - rows_.begin();
  }

 private:
  Tensor indices(const std::vector<int64_t>& values) const {
    return from_values(values, {static_cast<int64_t>(values.size())},
                       {.dtype = i64, .device = device_});
  }

  Sharding sharding_;
  Device device_;
  std::vector<int64_t> rows_;
};

}  // namespace

static int64_t code_of(const Tensor& info) { return static_cast<int64_t>(info.item()); }

CholeskyFactor cholesky_of_rows(const Tensor& given) {
  const NoGrad no_grad;
  const Tensor a = cut_by_rows(given), l = zeros_like(a);
  const RowsOfCut rows(a);
  const Tensor of = a.local(), to = l.local();
  const int64_t n = a.size(0);
  int64_t failed = 0;
  for (int64_t first = 0; first < n && failed == 0; first += kPanel) {
    const int64_t last = std::min(first + kPanel, n);
    const Tensor panel = rows.part_of(slice(to, 1, first, last), first, n);
    copy_(panel, rows.part_of(slice(of, 1, first, last), first, n));
    if (first > 0) {
      const Tensor above = rows.whole(slice(l, 1, 0, first), first, last);
      neg_(panel);
      add_product(panel, rows.part_of(slice(to, 1, 0, first), first, n), t(above));
      neg_(panel);
    }
    const Tensor square = rows.whole(slice(l, 1, first, last), first, last);
    const CholeskyFactor own = cholesky_factor(rows.replicated(square), false);
    if (const int64_t order = code_of(own.info.local()); order != 0) failed = first + order;
    const Tensor corner = own.l.local(), columns = slice(to, 1, first, last);
    rows.write(columns, corner, first);
    // x l^H = panel.
    const Tensor below = rows.part_of(columns, last, n);
    if (below.numel() > 0) copy_(below, t(solve_triangle(corner, t(below), false)));
  }
  const Tensor info = full({}, failed, options_next_to(a, i32));
  if (failed != 0) return {mul(redistributed(l, given.sharding()), NAN), info};
  return {redistributed(l, given.sharding()), info};
}

Tensor solve_triangle_of_rows(const Tensor& given, const Tensor& b, bool upper, bool transposed,
                              bool unit) {
  const NoGrad no_grad;
  const Tensor a = cut_by_rows(given), left = mul(redistributed(b, a.sharding()), 1);
  const RowsOfCut rows(a);
  const Tensor of = a.local(), x = left.local();
  const int64_t n = a.size(0), panels = (n + kPanel - 1) / kPanel;
  const bool from_last = upper != transposed;
  for (int64_t i = 0; i < panels; ++i) {
    const int64_t first = (from_last ? panels - 1 - i : i) * kPanel;
    const int64_t last = std::min(first + kPanel, n);
    const Tensor columns = slice(of, 1, first, last);
    Tensor right = rows.whole(left, first, last);
    if (transposed) {
      const int64_t solved = from_last ? last : 0, end = from_last ? n : first;
      const Tensor done = rows.part_of(columns, solved, end);
      right = sub(right, rows.summed(matmul(t(done), rows.part_of(x, solved, end))));
    }
    const Tensor corner = rows.whole(slice(a, 1, first, last), first, last);
    const Tensor own = solve_triangle(corner, right, upper, transposed, unit);
    rows.write(x, own, first);
    if (transposed) continue;
    const int64_t open = from_last ? 0 : last, end = from_last ? first : n;
    add_product(rows.part_of(x, open, end), rows.part_of(columns, open, end), neg_(own));
  }
  return left;
}

/// Rows `order` (i64, on all ranks) of a matrix that is cut by rows; ranks receive those of others.
static Tensor rows_at(const Tensor& a, const Tensor& order) {
  return take_rows(a, redistributed(order, a.sharding()));
}

Tensor solve_by_lu_of_rows(const Tensor& lu, const Tensor& order, const Tensor& b,
                           bool transposed) {
  const Tensor factors = cut_by_rows(lu), right = redistributed(b, factors.sharding());
  if (!transposed) {
    const Tensor y = solve_triangle_of_rows(factors, rows_at(right, order), false, false, true);
    return solve_triangle_of_rows(factors, y, true);
  }
  const Tensor y = solve_triangle_of_rows(factors, right, true, true);
  return rows_at(solve_triangle_of_rows(factors, y, false, true, true), argsort(order, 0));
}

Tensor order_of(const Tensor& pivots) {
  std::vector<int64_t> order(static_cast<size_t>(pivots.size(0)));
  std::iota(order.begin(), order.end(), 0);
  const Tensor whole = pivots.is_sharded() ? pivots.full_tensor() : pivots;
  size_t row = 0;
  for (const int64_t with : whole.to_vector<int64_t>()) {
    if (with >= 1 && with <= pivots.size(0))
      std::swap(order[row], order[static_cast<size_t>(with - 1)]);
    ++row;
  }
  return from_values(order, {pivots.size(0)}, options_next_to(pivots, i64));
}

/// The factors of a panel that all ranks have, by the mesh's first rank: others may have other
/// pivots.
static LuFactor factors_of_first(const Tensor& panel, const RowsOfCut& rows, bool is_first) {
  LuFactor found;
  if (is_first) {
    found = lu_factor_of(panel);
  } else {
    found = {.lu = zeros_like(panel),
             .pivots = zeros({panel.size(1)}, options_next_to(panel, i32)),
             .order = zeros({panel.size(0)}, options_next_to(panel, i64)),
             .info = zeros({}, options_next_to(panel, i32))};
  }
  for (Tensor* result : {&found.lu, &found.pivots, &found.order, &found.info}) {
    *result = rows.summed(*result, true);
  }
  return found;
}

LuFactor lu_of_rows(const Tensor& given) {
  const NoGrad no_grad;
  const Tensor a = cut_by_rows(given), lu = mul(a, 1);
  const RowsOfCut rows(a);
  const Tensor part = lu.local();
  const int64_t n = a.size(0);
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  Tensors pivots;
  const bool is_first = a.sharding().mesh().rank() == 0;
  int64_t failed = 0;
  for (int64_t first = 0; first < n; first += kPanel) {
    const int64_t last = std::min(first + kPanel, n);
    const Tensor columns = slice(part, 1, first, last);
    const LuFactor panel =
        factors_of_first(rows.whole(slice(lu, 1, first, last), first, n), rows, is_first);
    if (const int64_t code = code_of(panel.info); code != 0 && failed == 0) failed = first + code;
    pivots.push_back(add(panel.pivots, first));
    // The panel's rows and those that change places: `wanted` are where they come from.
    const std::vector<int64_t> exchanged = panel.order.to_vector<int64_t>();
    std::vector<int64_t> places, wanted, before(order.begin() + first, order.end());
    for (int64_t i = 0; i < n - first; ++i) {
      const int64_t from = exchanged[static_cast<size_t>(i)];
      order[static_cast<size_t>(first + i)] = before[static_cast<size_t>(from)];
      if (from == i && first + i >= last) continue;
      places.push_back(first + i), wanted.push_back(first + from);
    }
    const Tensor moved = rows.whole_at(part, wanted);
    rows.write_at(part, moved, places);
    rows.write(columns, panel.lu, first);
    if (last == n) break;
    const Tensor corner = slice(panel.lu, 0, 0, last - first);
    const Tensor right = slice(slice(moved, 0, 0, last - first), 1, last, n);
    const Tensor own = solve_triangle(corner, right, false, false, true);
    const Tensor behind = slice(part, 1, last, n);
    rows.write(behind, own, first);
    add_product(rows.part_of(behind, last, n), rows.part_of(columns, last, n), neg_(own));
  }
  return {redistributed(lu, given.sharding()), rows.replicated(cat(pivots, 0)),
          from_values(order, {n}, options_next_to(a, i64)),
          full({}, failed, options_next_to(a, i32))};
}

}  // namespace weft
