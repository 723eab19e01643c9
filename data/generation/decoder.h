// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/mesh.h"
#include "weft/transformer.h"

namespace weft {

/// Computes the logits of one sequence token by token, with a cache. The model is cut by its styles
/// or whole, not fully sharded. Collective over the mesh.
class Decoder {
 public:
  /// At most `context` tokens.
  Decoder(TransformerModel& model, const DeviceMesh& mesh, int64_t context);

  /// The logits [vocabulary] that follow the last of `tokens`, which follow those given before: the
  /// prompt at first, then one a call. std::invalid_argument beyond the context.
  std::vector<double> next(std::span<const int64_t> tokens);
  /// Tokens given so far.
  int64_t position() const { return cache_.position; }
  /// Bytes of the caches on this rank.
  int64_t cache_bytes() const;

 private:
  TransformerModel& model_;
  DeviceMesh mesh_;
  KeyValueCache cache_;
  /// The tokens given so far.
  std::vector<int64_t> seen_;
};

}  // namespace weft
