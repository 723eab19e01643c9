// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "ops/decompositions.h"
#include "weft/ops.h"

namespace weft {

/// Returns how many ranks have parts of the rows of a matrix that is cut by rows alone; 0 where a
/// part could have fewer rows than columns, or parts have explicit sizes.
static int64_t parts_of_rows(const Tensor& a) {
  if (!a.is_sharded() || a.ndim() != 2) return 0;
  const Sharding& sharding = a.sharding();
  int64_t parts = 1;
  for (int axis = 0; axis < sharding.axes(); ++axis) {
    const Placement& placement = sharding[axis];
    if (placement.is_replicate()) continue;
    if (!placement.is_shard() || placement.dim() != 0 || !placement.sizes().empty()) return 0;
    parts *= sharding.mesh().axis_size(axis);
  }
  const int64_t rows = (a.size(0) + parts - 1) / parts;
  return parts > 1 && a.size(0) - (parts - 1) * rows >= a.size(1) ? parts : 0;
}

std::optional<QrFactor> tall_qr(const Tensor& a, bool with_q) {
  const int64_t parts = parts_of_rows(a);
  if (parts == 0) return {};
  const int64_t m = a.size(0), n = a.size(1), rows = (m + parts - 1) / parts;
  const Tensor padded = parts * rows == m ? a : pad(a, 0, 0, parts * rows - m);
  const QrFactor first = qr_factor(reshape(padded, {parts, rows, n}), false);
  const QrFactor second = qr_factor(reshape(first.r, {parts * n, n}), false);
  if (!with_q) return QrFactor{{}, second.r};
  const Tensor q = reshape(matmul(first.q, reshape(second.q, {parts, n, n})), {parts * rows, n});
  return QrFactor{parts * rows == m ? q : slice(q, 0, 0, m), second.r};
}

}  // namespace weft
