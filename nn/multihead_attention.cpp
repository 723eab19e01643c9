// SPDX-License-Identifier: Apache-2.0
#include "weft/multihead_attention.h"

#include <cmath>
#include <limits>

#include "nn/checks.h"
#include "weft/losses.h"
#include "weft/ops.h"

namespace weft {

Tensors LossModule::forward(const Tensors& inputs) {
  if (inputs.size() != 2) {
    fail(name_, ": number of inputs is ", inputs.size(), ", expected 2: input and target");
  }
  return {function_(inputs[0], inputs[1])};
}

/// Returns a mask that is added to scores: bool becomes -infinity where it is true.
static Tensor as_addend(const Tensor& mask) {
  if (mask.dtype() != boolean) return mask;
  const Tensor zeros_of = cast(mask, f32) * 0;
  return masked_fill(zeros_of, mask, -std::numeric_limits<double>::infinity());
}

/// Returns the mask of `attention`, which broadcasts to [batch, heads, queries, keys], or empty.
static Tensor combined_mask(const MultiheadMasks& masks, int64_t heads, const Shape& q,
                            const Shape& k) {
  Tensor padding = masks.key_padding_mask, own = masks.attn_mask;
  const Shape rows{q[0], k[1]}, plane{q[1], k[1]}, planes{q[0] * heads, q[1], k[1]};
  if (padding && !(padding.shape() == rows)) {
    fail("multihead_attention: key_padding_mask is ", padding.shape(), ", expected ", rows);
  }
  if (own && !(own.shape() == plane) && !(own.shape() == planes)) {
    fail("multihead_attention: attn_mask is ", own.shape(), ", expected ", plane, " or ", planes);
  }
  if (padding) padding = reshape(padding, {q[0], 1, 1, k[1]});
  if (own && own.ndim() == 3) own = reshape(own, {q[0], heads, q[1], k[1]});
  if (own && own.ndim() == 2) own = reshape(own, {1, 1, q[1], k[1]});
  if (!padding || !own) {
    const Tensor& one = padding ? padding : own;
    return one && one.dtype() == boolean ? logical_not(one) : one;
  }
  if (padding.dtype() == boolean && own.dtype() == boolean) {
    return logical_not(logical_or(padding, own));
  }
  return as_addend(padding) + as_addend(own);
}

/// The probabilities [batch, heads, queries, keys] of q and k [batch, sequence, heads, d].
static Tensor probabilities(const Tensor& q, const Tensor& k, const Tensor& mask, bool is_causal) {
  const Tensor keys = permute(k, {0, 2, 3, 1});
  Tensor scores =
      mul(matmul(permute(q, {0, 2, 1, 3}), keys), 1 / std::sqrt(static_cast<double>(q.size(3))));
  const double none = -std::numeric_limits<double>::infinity();
  if (mask && mask.dtype() == boolean) scores = masked_fill(scores, logical_not(mask), none);
  if (mask && mask.dtype() != boolean) scores = scores + mask;
  if (is_causal) {
    const Tensor later = triu(ones_like(scores), 1 + k.size(1) - q.size(1));
    scores = masked_fill(scores, greater(later, 0), none);
  }
  return softmax(scores);
}

Tensors multihead_attention(const Tensor& q, const Tensor& k, const Tensor& v, int64_t heads,
                            const MultiheadMasks& masks, double dropout, bool weights) {
  const auto by_heads = [heads](const Tensor& x) {
    return reshape(x, {x.size(0), x.size(1), heads, x.size(2) / heads});
  };
  const Tensor mask = combined_mask(masks, heads, q.shape(), k.shape());
  const Tensor query = by_heads(q), key = by_heads(k);
  const Tensor y = attention(query, key, by_heads(v),
                             {.causal = masks.is_causal, .mask = mask, .dropout = dropout});
  Tensors made = {reshape(y, q.shape())};
  if (weights) made.push_back(probabilities(query, key, mask, masks.is_causal));
  return made;
}

MultiheadAttention::MultiheadAttention(int64_t dim, int64_t heads,
                                       const MultiheadAttentionOptions& options)
    : dim_(dim), heads_(heads), options_(options) {
  check_positive("multihead_attention", "dim", dim);
  check_positive("multihead_attention", "heads", heads);
  if (dim % heads != 0) {
    fail("multihead_attention: dim is ", dim, ", expected a multiple of ", heads, ", the heads");
  }
  const int64_t kdim = options.kdim.value_or(dim), vdim = options.vdim.value_or(dim);
  check_positive("multihead_attention", "kdim", kdim);
  check_positive("multihead_attention", "vdim", vdim);
  // Glorot's uniform distribution, as in PyTorch.
  const auto declare_projection = [this](const char* name, int64_t rows, int64_t columns) {
    declare(name, {rows, columns},
            uniform_values(std::sqrt(6 / static_cast<double>(rows + columns))));
  };
  if (kdim == dim && vdim == dim) {
    declare_projection("in_proj_weight", 3 * dim, dim);
  } else {
    declare_projection("q_proj_weight", dim, dim);
    declare_projection("k_proj_weight", dim, kdim);
    declare_projection("v_proj_weight", dim, vdim);
  }
  if (options.bias) declare("in_proj_bias", {3 * dim}, constant_values(0));
  out_proj_ = add("out_proj", std::make_shared<Linear>(dim, dim, options.bias));
}

Tensors MultiheadAttention::computed(const Tensors& inputs, const MultiheadMasks& masks,
                                     AttentionWeights weights) {
  if (inputs.size() != 3) {
    fail("multihead_attention: number of inputs is ", inputs.size(),
         ", expected 3: query, key, value");
  }
  const size_t separate = own_parameters()[0].first == "in_proj_weight" ? 1 : 3;
  Tensors projected;
  for (size_t i = 0; i < 3; ++i) {
    const Tensor& x = inputs[i];
    if (x.ndim() != 3) {
      fail("multihead_attention: shape of input ", i, " is ", x.shape(), ", expected [",
           options_.batch_first ? "batch, sequence" : "sequence, batch", ", dim]");
    }
    const auto at = static_cast<int64_t>(i) * dim_;
    const Tensor weight = separate == 3 ? used(i) : slice(used(0), 0, at, at + dim_);
    const Tensor rows = options_.batch_first ? x : transpose(x, 0, 1);
    projected.push_back(options_.bias
                            ? linear(rows, weight, slice(used(separate), 0, at, at + dim_))
                            : linear(rows, weight));
  }
  const double dropout = is_training() ? options_.dropout : 0;
  Tensors made = multihead_attention(projected[0], projected[1], projected[2], heads_, masks,
                                     dropout, weights != AttentionWeights::none);
  made[0] = (*out_proj_)(made[0]);
  if (!options_.batch_first) made[0] = transpose(made[0], 0, 1);
  if (weights == AttentionWeights::averaged) made[1] = mean(made[1], {1});
  return made;
}

Tensors MultiheadAttention::forward(const Tensors& inputs) {
  return computed(inputs, {}, AttentionWeights::none);
}

Tensors MultiheadAttention::attend(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const MultiheadMasks& masks, AttentionWeights weights) {
  return call({query, key, value}, [this, masks, weights](const Tensors& inputs) {
    return computed(inputs, masks, weights);
  });
}

}  // namespace weft
