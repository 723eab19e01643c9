// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "tests/support/ranks.h"
#include "weft/tensor_parallel.h"
#include "weft/transformer.h"

namespace weft {

/// A model whose sizes differ from each other.
inline const TransformerConfig kSmallConfig = [] {
  // dim, layers, heads, kv_heads, head_dim, ffn, vocabulary, max_sequence
  TransformerConfig config{16, 2, 4, 2, 4, 24, 31, 32};
  config.deviation = 0.3;
  return config;
}();

/// Runs `body` on the ranks, over which a model is cut.
inline void on_small_model(
    int ranks, const std::function<void(TransformerModel& model, const DeviceMesh& mesh)>& body,
    const TransformerConfig& config = kSmallConfig) {
  on_mesh({{"tp", ranks}}, [&](const DeviceMesh& mesh) {
    TransformerModel model(config);
    parallelize(model, mesh["tp"], transformer_styles(config));
    model.materialize();
    body(model, mesh);
  });
}

}  // namespace weft
