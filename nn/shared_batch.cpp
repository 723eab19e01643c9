// SPDX-License-Identifier: Apache-2.0
#include "weft/shared_batch.h"

#include "weft/error.h"
#include "weft/extend/pattern.h"

namespace weft {

/// Cuts rows along the sequence, with the tokens in their order.
static Tensor cut_in_order(const Tensor& rows, const DeviceMesh& axis) {
  if (!rows) return rows;
  if (!rows.is_sharded()) {
    fail("share_batch: rows have no sharding, expected one over ", axis.root());
  }
  Pattern pattern = rows.sharding().pattern();
  pattern.set(axis.root_axis(0), Shard(1));
  return redistributed(rows, Sharding::of(axis.root(), pattern));
}

/// Not with dropout, which draws by place, nor where the rotation follows the length of a row.
static bool takes_any_order(const TransformerConfig& c) {
  const RopeScalingKind kind = c.rope_scaling.kind;
  const bool drops = c.embedding_dropout + c.residual_dropout + c.attention_dropout > 0;
  return c.causal && !drops && kind != RopeScalingKind::dynamic &&
         kind != RopeScalingKind::longrope;
}

SharedBatch share_batch(const TransformerConfig& config, const Tensor& ids, const Tensor& targets,
                        const Tensor& segments, const DeviceMesh& axis, bool keeps_order) {
  if (keeps_order || !takes_any_order(config)) {
    return {cut_in_order(ids, axis),
            cut_in_order(targets, axis),
            {.segments = cut_in_order(segments, axis)}};
  }
  SharedSequence shared = share_sequence(ids, targets, segments, axis);
  return {shared.ids, shared.targets, {.positions = shared.positions, .order = shared.order}};
}

}  // namespace weft
