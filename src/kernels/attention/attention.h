// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "weft/block.h"
#include "weft/context.h"

namespace weft {

struct ScoreMod;

/// Position of a rank's part in the whole operands, which have all_heads heads and all_queries
/// queries; 0 stands for those of the part.
struct AttentionOrigin {
  int64_t batch = 0, head = 0, all_heads = 0, all_queries = 0;
};

/// Options of attention, and its operands other than q, k and v; null data omits one. T below is
/// f32, or f64 when q is f64.
struct AttentionArguments {
  /// Factor of the scores; 1 / sqrt(head_dim) unless set.
  std::optional<double> scale;
  /// Query i attends only to keys 0 .. query_offset + i.
  bool causal = true;
  /// Position of the first query among the keys; by default T - S: queries are the last positions.
  std::optional<int64_t> query_offset;
  /// Query i attends only to keys after query_offset + i - window, and before + window; 0: to all.
  int64_t window = 0;
  double softcap = 0;
  /// bool or T, [1 or B, 1 or H, 1 or S, 1 or T].
  MemoryBlock mask = {};
  /// T [H], T [H], i64 [B, T].
  MemoryBlock sinks = {}, slopes = {}, segments = {};
  double dropout = 0;
  RandomState random = {};
  AttentionOrigin origin = {};
  /// A custom mod and its bytes; on the CPU and the emulated device only.
  const ScoreMod* mod = nullptr;
  const void* mod_bytes = nullptr;

  /// True when scores or probabilities change other than by the scale.
  bool has_rule() const {
    return softcap > 0 || mask.data || sinks.data || slopes.data || segments.data || dropout > 0 ||
           mod;
  }
};

/// The operands and results of attention.
struct AttentionOperands {
  const MemoryBlock &q, &k, &v, &out, &lse;
  const AttentionArguments& options;
};

/// out = softmax(scale * q @ k^T) @ v, head by head, without storing all scores. Dims are (batch,
/// heads, sequence, head_dim): q and out [B, H, S, D], k and v [B, Hkv, T, D], where H is a
/// multiple of Hkv and each group of H / Hkv consecutive heads shares one key head. The last dim
/// must be dense; other strides are free, so views of [B, S, H, D] work as well. lse [B, H, S] gets
/// each query's logsumexp of scaled scores, for the backward, in f32 (f64 when q is f64); null data
/// omits it. q, k, v and out have one floating dtype. A query that sees no key gives 0 and,
/// without sinks, an lse of -inf. Results do not depend on the number of threads.
void attention(const AttentionOperands& x);

/// Sets the dtype in which q, k and v of bf16, probabilities and gradients of scores are
/// multiplied: f32 or bf16. Sums are in f32 either way. By default bf16 if the processor has
/// instructions for bf16 products. For tests; must not be called during computations.
void multiply_attention_in(std::optional<DType> dtype);

/// The operands and results of `attention`, the gradient of out, and the results of its gradient.
struct AttentionGradients : AttentionOperands {
  const MemoryBlock &dout, &dq, &dk, &dv, &dmask;
};

/// Computes gradients dq, dk, dv (shaped as q, k, v; overwritten) of `attention`; and dmask (T,
/// shaped as the mask), unless its data is null.
void attention_backward(const AttentionGradients& x);

}  // namespace weft
