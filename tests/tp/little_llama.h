// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "weft/ops.h"
#include "weft/tensor_parallel.h"
#include "weft/transformer.h"

namespace weft {

/// Sizes that few numbers of ranks divide, except the heads.
inline TransformerConfig little_llama(int64_t heads, int64_t kv_heads, int64_t layers = 2) {
  TransformerConfig config;
  config.dim = 20;
  config.layers = layers;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = 6;
  config.ffn = 23;
  config.vocabulary = 37;
  config.deviation = 0.2;
  return config;
}

/// Ids [rows, columns] of the little Llama, equal on all ranks, laid out by `options`.
inline Tensor some_ids(const Shape& shape, int64_t salt, const TensorOptions& options) {
  std::vector<double> ids;
  for (int64_t i = 0; i < shape.product(); ++i) {
    ids.push_back(static_cast<double>((i * i * 7 + i * 13 + salt * 31) % 37));
  }
  return from_values(ids, shape, options);
}

}  // namespace weft
