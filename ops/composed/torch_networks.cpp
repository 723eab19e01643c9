// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/tensor_body.h"
#include "weft/error.h"
#include "weft/ops/attention.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/shapes.h"
#include "weft/torch.h"

namespace weft::torch {

static constexpr const char* kAttention = "scaled_dot_product_attention";

static Tensor sequence_first(const char* name, const Tensor& x) {
  check_tensor(kAttention, x);
  if (x.ndim() != 4) {
    fail(kAttention, ": ", name, " is ", x.shape(), ", expected [batch, heads, sequence, d]");
  }
  return x.transpose(1, 2);
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale, bool) {
  Tensor q = sequence_first("query", query);
  const Tensor k = sequence_first("key", key), v = sequence_first("value", value);
  if (is_causal && attn_mask) {
    fail(kAttention, ": is_causal and attn_mask are given, expected one");
  }
  if (is_causal && q.size(1) != k.size(1)) {
    fail(kAttention, ": number of queries is ", q.size(1), ", expected ", k.size(1),
         ", that of keys, for is_causal");
  }
  if (scale == 0.0) q = mul(q, 0), scale = 1;  // 0 stands for the default there
  return attention(q, k, v,
                   {.causal = is_causal,
                    .scale = scale.value_or(0),
                    .mask = attn_mask,
                    .dropout = dropout_p})
      .transpose(1, 2);
}

}  // namespace weft::torch
