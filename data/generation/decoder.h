// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/mesh.h"
#include "weft/transformer.h"

namespace weft {

/// Computes a Llama token by token: keys and values of what went before are kept, one cache a layer
/// [1, context, kv_heads, head_dim], laid out as the model's heads are. The model is cut by its
/// styles or whole, not fully sharded. Collective over the mesh.
class Decoder {
 public:
  /// At most `context` tokens.
  Decoder(TransformerModel& model, const DeviceMesh& mesh, int64_t context);

  /// The logits [vocabulary] that follow the last of `tokens`, which follow those given before: the
  /// prompt at first, then one a call. std::invalid_argument beyond the context.
  std::vector<double> next(std::span<const int64_t> tokens);
  /// Tokens given so far.
  int64_t position() const { return position_; }
  /// Bytes of the caches on this rank.
  int64_t cache_bytes() const;

 private:
  struct Layer {
    Module *attention_norm, *query, *key, *value, *output;
    Module *feed_forward_norm, *feed_forward;
    Tensor keys, values;
  };
  Tensor attend(Layer& layer, const Tensor& x);
  void keep(Tensor& cache, const Tensor& rows) const;
  Tensor by_heads(const Tensor& x) const;

  TransformerModel& model_;
  DeviceMesh mesh_;
  int64_t context_;
  int64_t position_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace weft
