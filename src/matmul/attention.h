// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "weft/block.h"

namespace weft {

/// What attention computes, beside its operands.
struct AttentionOptions {
  /// Factor of the scores; 1 / sqrt(head_dim) unless given.
  std::optional<double> scale;
  /// Query i sees keys 0 .. query_offset + i only.
  bool causal = true;
  /// Position of the first query among the keys; unless given, queries are the last ones: T - S.
  std::optional<int64_t> query_offset;
};

/// out = softmax(scale * q @ k^T) @ v, head by head, without ever holding the scores. Dims are
/// (batch, heads, sequence, head_dim): q and out [B, H, S, D], k and v [B, Hkv, T, D], where H is a
/// multiple of Hkv and heads h * H / Hkv ... share one key head. Strides are free but for a dense
/// last dim, so that views of [B, S, H, D] serve as well. lse [B, H, S] gets each query's logsumexp
/// of scaled scores, for the backward; f32 (f64 when q is f64), and left out when its data is null.
/// q, k, v and out have one floating dtype. A query that sees no key gives 0 and an lse of -inf.
/// Results do not depend on the number of threads.
void attention(const Block& q, const Block& k, const Block& v, const AttentionOptions& options,
               const Block& out, const Block& lse);

/// What q, k and v of bf16, probabilities and the gradients of scores are multiplied as; sums are
/// of f32 either way. Unless told: bf16 where the processor has instructions for its products. For
/// tests, while nothing computes: f32 or bf16.
void multiply_attention_in(std::optional<DType> dtype);

/// Gradients dq, dk, dv (shaped as q, k, v; written, not added to) of `attention` from its
/// operands, its results and dout, the gradient of out.
void attention_backward(const Block& q, const Block& k, const Block& v, const Block& out,
                        const Block& lse, const Block& dout, const AttentionOptions& options,
                        const Block& dq, const Block& dk, const Block& dv);

}  // namespace weft
