// SPDX-License-Identifier: Apache-2.0
#include "data/generation/decoder.h"

#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft {

Decoder::Decoder(TransformerModel& model, const DeviceMesh& mesh, int64_t context)
    : model_(model), mesh_(mesh), context_(context) {
  if (context < 1 || context > model.config().max_sequence) {
    fail("decode: number of tokens is ", context, ", expected 1 to ", model.config().max_sequence,
         ", those of the model");
  }
  for (Module* block : model.blocks()) {
    const auto part = [&](const char* path) { return &block->module(path); };
    layers_.push_back({.attention_norm = part("input_layernorm"),
                       .query = part("self_attn.q_proj"),
                       .key = part("self_attn.k_proj"),
                       .value = part("self_attn.v_proj"),
                       .output = part("self_attn.o_proj"),
                       .feed_forward_norm = part("post_attention_layernorm"),
                       .feed_forward = part("mlp"),
                       .keys = {},
                       .values = {}});
  }
}

Tensor Decoder::by_heads(const Tensor& x) const {
  const int64_t d = model_.config().head_dim;
  return reshape(x, {x.size(0), x.size(1), x.size(2) / d, d});
}

/// Rows [position, position + rows) of the cache, which is made like the first of them.
void Decoder::keep(Tensor& cache, const Tensor& rows) const {
  if (!cache) {
    cache = zeros({1, context_, rows.size(2), rows.size(3)},
                  {.dtype = rows.dtype(), .device = rows.device(), .sharding = rows.sharding()});
  }
  copy_(slice(cache, 1, position_, position_ + rows.size(1)), rows);
}

Tensor Decoder::attend(Layer& layer, const Tensor& x) {
  const double theta = model_.config().rope_theta;
  const Tensor q = rope(by_heads((*layer.query)(x)), theta, position_);
  keep(layer.keys, rope(by_heads((*layer.key)(x)), theta, position_));
  keep(layer.values, by_heads((*layer.value)(x)));
  const int64_t seen = position_ + x.size(1);
  // The last token sees all that is kept; of a prompt each token sees those before it.
  const Tensor y =
      attention(q, slice(layer.keys, 1, 0, seen), slice(layer.values, 1, 0, seen), x.size(1) > 1);
  return (*layer.output)(reshape(y, {y.size(0), y.size(1), y.size(2) * y.size(3)}));
}

std::vector<double> Decoder::next(std::span<const int64_t> tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  if (count == 0 || position_ + count > context_) {
    fail("decode: number of tokens is ", count, " after ", position_, ", expected at least 1, and ",
         context_, " in all at most");
  }
  if (position_ > 0 && count > 1) {
    fail("decode: number of tokens is ", count, " after ", position_,
         ", expected one at a time after the prompt");
  }
  const NoGrad no_grad;
  const std::vector<double> values(tokens.begin(), tokens.end());
  const Device device = model_.parameters()[0]->device();
  Tensor x = model_.module("model.embed_tokens")(
      from_values(values, {1, count}, {DType::i64, device, Sharding(mesh_, {})}));
  for (Layer& layer : layers_) {
    x = x + attend(layer, (*layer.attention_norm)(x));
    x = x + (*layer.feed_forward)((*layer.feed_forward_norm)(x));
  }
  x = model_.module("model.norm")(slice(x, 1, count - 1, count));
  position_ += count;
  return model_.module("lm_head")(x).full_tensor().to_vector<double>();
}

int64_t Decoder::cache_bytes() const {
  int64_t bytes = 0;
  for (const Layer& layer : layers_) {
    for (const Tensor& cache : {layer.keys, layer.values}) {
      if (cache) bytes += cache.local().numel() * static_cast<int64_t>(size_of(cache.dtype()));
    }
  }
  return bytes;
}

}  // namespace weft
