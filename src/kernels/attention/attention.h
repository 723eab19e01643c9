// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "weft/block.h"

namespace weft {

/// Options of attention.
struct AttentionOptions {
  /// Factor of the scores; 1 / sqrt(head_dim) unless set.
  std::optional<double> scale;
  /// Query i attends only to keys 0 .. query_offset + i.
  bool causal = true;
  /// Position of the first query among the keys; by default T - S: queries are the last positions.
  std::optional<int64_t> query_offset;
};

/// out = softmax(scale * q @ k^T) @ v, head by head, without storing all scores. Dims are (batch,
/// heads, sequence, head_dim): q and out [B, H, S, D], k and v [B, Hkv, T, D], where H is a
/// multiple of Hkv and each group of H / Hkv consecutive heads shares one key head. The last dim
/// must be dense; other strides are free, so views of [B, S, H, D] work as well. lse [B, H, S] gets
/// each query's logsumexp of scaled scores, for the backward, in f32 (f64 when q is f64); null data
/// omits it. q, k, v and out have one floating dtype. A query that sees no key gives 0 and an lse
/// of -inf. Results do not depend on the number of threads.
void attention(const MemoryBlock& q, const MemoryBlock& k, const MemoryBlock& v,
               const AttentionOptions& options, const MemoryBlock& out, const MemoryBlock& lse);

/// Sets the dtype in which q, k and v of bf16, probabilities and gradients of scores are
/// multiplied: f32 or bf16. Sums are in f32 either way. By default bf16 if the processor has
/// instructions for bf16 products. For tests; must not be called during computations.
void multiply_attention_in(std::optional<DType> dtype);

/// Computes gradients dq, dk, dv (shaped as q, k, v; overwritten) of `attention` from its operands,
/// its results and dout, the gradient of out.
void attention_backward(const MemoryBlock& q, const MemoryBlock& k, const MemoryBlock& v,
                        const MemoryBlock& out, const MemoryBlock& lse, const MemoryBlock& dout,
                        const AttentionOptions& options, const MemoryBlock& dq,
                        const MemoryBlock& dk, const MemoryBlock& dv);

}  // namespace weft
