// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>

#include "weft/extend/op.h"
#include "weft/extend/score_mod.h"
#include "weft/ops/networks.h"

namespace weft {

/// Returns an op that computes attention with a mod, for `attention_by`.
WEFT_API Op make_attention_op(const char* name, const ScoreMod& mod);
WEFT_API Tensor attention_by(const Op& op, const Tensor& q, const Tensor& k, const Tensor& v,
                             const AttentionOptions& options, const ScoreModBytes& mod);

/// `attention` with a mod, which is applied after the softcap. On the CPU (and the emulated
/// device): the kernels for GPUs are compiled with weft and cannot call a functor that they were
/// not compiled with. On a GPU, state the rule as a mask, which may be added and has a gradient.
template <class Mod>
Tensor attention_with(const Tensor& q, const Tensor& k, const Tensor& v, const Mod& mod,
                      const AttentionOptions& options = {}) {
  static const Op op = make_attention_op("attention_with", score_mod_of<Mod>());
  ScoreModBytes bytes{};
  std::memcpy(bytes.data(), static_cast<const void*>(&mod), sizeof(Mod));
  return attention_by(op, q, k, v, options, bytes);
}

}  // namespace weft
