// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "mesh/plan.h"
#include "weft/ops/sequences.h"

namespace weft {

/// The layouts of a call of ordered_attention.
struct WayLayouts {
  /// The layout of the operands and the results at rest: equal cuts of batch, sequence and heads.
  Ref<Layout> q, kv;
  /// The layout in which queries and keys are computed.
  Ref<Layout> used_q, used_kv;
  /// The gradients of the used keys.
  Ref<Layout> partial_kv;
};

/// Axes of more than one rank that cut the sequence.
Axes sequence_axes(const Sharding& sharding);

/// Returns q, k and v with equal cuts of batch, sequence and heads; recorded.
Tensors laid_out_alike(const Tensor& q, const Tensor& k, const Tensor& v);

/// Returns the way of a call with such operands; std::invalid_argument if `way` is not possible.
SequenceWay checked_way(SequenceWay way, const Ref<Layout>& q, const Ref<Layout>& kv);

WayLayouts layouts_in(SequenceWay way, const Ref<Layout>& q, const Ref<Layout>& kv);

/// Throws std::invalid_argument unless these are queries, keys and values of the same tokens.
void check_tokens(const Tensor& q, const Tensor& k, const Tensor& v);

}  // namespace weft
