// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "weft/dtype.h"

namespace weft {

/// Dtypes in which fully sharded parameters and gradients are sent (ZeRO++), in place of those of
/// MixedPrecision. Codes of 8 bits have a scale of f32 for each `block` elements of a rank's part:
/// 0.254 of the bytes of f32 with the default. For ZeRO++'s hierarchical partition (hpZ), in which
/// backward gathers within a host, name the host's axis in `reshard_after_forward`.
/// Where several axes shard together, codes may move in two stages, so that each crosses the slow
/// links once a host, and not once a rank: gradients are summed in f32 along the axes within a
/// host, and the codes of these sums along the others; parameters are gathered along the others,
/// then within. By default they do if that is predicted to be faster.
struct Quantization {
  /// Codes of parameters (qwZ): i8 or f8_e4m3. All ranks compute on the rounded values; the slices
  /// that the optimizer changes are exact. The codes that a gather receives lie behind the
  /// parameters in its buffer.
  std::optional<DType> gather = {};
  /// Codes of gradients (qgZ): i8, or bf16 without scales, rounded stochastically by the rank's
  /// random numbers. Each rank sends each other rank the codes of its part, and sums what it
  /// receives in f32, in rank order. The codes lie behind the gradients in their buffer. Replicas
  /// sum parts in the same way and send the codes of the sums, whose memory counts as memory of
  /// gradients. A second reduce-scatter at the sync is not quantized.
  std::optional<DType> reduce = {};
  /// A multiple of 4.
  int64_t block = 256;
  /// Adds what the codes of gradients missed to the next gradients. Needs memory for an f32 of each
  /// unsharded parameter, which counts as memory of gradients.
  bool error_feedback = false;
  /// The axis within a host, to move codes in two stages; "" for one stage. No effect where this
  /// axis does not shard together with others.
  std::optional<std::string> within = {};
};

}  // namespace weft
