// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "nn/rotary.h"
#include "weft/transformer.h"

namespace weft {

struct TransformerState {
  explicit TransformerState(const TransformerConfig& config);

  const TransformerConfig config;
  /// The rotation of most layers, and that of those with a window.
  Rotary rotary, local_rotary;
  /// While the model decodes.
  KeyValueCache* cache = nullptr;

  bool has_window(int64_t layer) const;
  bool rotates(int64_t layer) const;
};

/// Makes the norm that the config states: [..., dim] -> [..., dim].
std::shared_ptr<Module> make_norm(const TransformerConfig& config, int64_t dim);

/// Applies the config's activation.
Tensor activated(Activation activation, const Tensor& x);

/// Makes block number `layer`, {[batch, sequence, dim], mask} -> [batch, sequence, dim]: attention
/// and feed-forward, normalised where the config states, each added to its input. The mask, of an
/// encoder, may be missing.
std::shared_ptr<Module> make_transformer_block(const std::shared_ptr<TransformerState>& state,
                                               int64_t layer);

}  // namespace weft
