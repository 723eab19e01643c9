// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "weft/extend/call.h"

namespace weft {

/// Flags of a call: whether it is causal, and which optional operands follow q, k, v (in backward:
/// q, k, v, out, lse, dout), in this order.
enum AttentionFlag : int64_t {
  kCausal = 1,
  kMask = 2,
  kSinks = 4,
  kSegments = 8,
  kAlibi = 16,
  kMaskGradient = 32
};

struct AttentionStructure {
  int64_t flags, window;
  bool has(int64_t flag) const { return (flags & flag) != 0; }
};

struct AttentionValues {
  double scale, softcap, dropout, mod0 = 0, mod1 = 0, mod2 = 0;
};

/// Results 0 and 1 of attention in other ops: the whole softmax, what the kernels compute in tiles.
Tensors attention_definition(std::span<const Tensor> given, const Attributes& attributes);

}  // namespace weft
