// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/weft.h"

// A vision transformer (Dosovitskiy et al. 2021) of weft's encoder blocks: images are cut into
// patches, which are the tokens; the first token, a learned one, is classified.

struct VitConfig {
  int64_t image = 224, patch = 16, channels = 3, classes = 1000;
  /// Widths of the blocks, as of ViT-Base.
  int64_t dim = 768, layers = 12, heads = 12, ffn = 3072;

  int64_t tokens() const { return (image / patch) * (image / patch) + 1; }
  /// The choices of the blocks: an encoder with layer norms before, biases and a plain GELU.
  weft::TransformerConfig encoder() const {
    weft::TransformerConfig c;
    c.dim = dim, c.layers = layers, c.heads = c.kv_heads = heads, c.head_dim = dim / heads;
    c.ffn = ffn, c.max_sequence = tokens(), c.norm_eps = 1e-12;
    c.norm = weft::NormKind::layer, c.activation = weft::Activation::gelu, c.gated = false;
    c.norm_bias = c.qkv_bias = c.output_bias = c.mlp_bias = true;
    c.causal = false, c.rotary_fraction = 0;
    return c;
  }
};

/// Images [batch, channels, size, size] -> tokens [batch, 1 + patches, dim].
class PatchEmbedding final : public weft::Module {
 public:
  explicit PatchEmbedding(const VitConfig& config) : config_(config) {
    const VitConfig& c = config;
    declare("cls_token", {1, 1, c.dim}, weft::normal_values(0.02));
    declare("position_embeddings", {1, c.tokens(), c.dim}, weft::normal_values(0.02));
    projection_ = add("projection", std::make_shared<weft::Linear>(c.channels * c.patch * c.patch,
                                                                   c.dim, true, 0.02));
  }

 protected:
  weft::Tensors forward(const weft::Tensors& inputs) override {
    const weft::Tensor& x = inputs[0];
    const int64_t n = x.size(0), c = config_.channels, p = config_.patch;
    const int64_t side = config_.image / p;
    // A convolution whose stride is its width: a product of each patch.
    const weft::Tensor cut = weft::reshape(x, {n, c, side, p, side, p});
    const weft::Tensor patches = weft::permute(cut, {0, 2, 4, 1, 3, 5});
    const weft::Tensor tokens = (*projection_)(weft::reshape(patches, {n, side * side, c * p * p}));
    const weft::Tensor first = weft::expand(used(0), {n, 1, config_.dim});
    return {weft::cat({first, tokens}, 1) + used(1)};
  }

 private:
  VitConfig config_;
  std::shared_ptr<weft::Linear> projection_;
};

/// Images -> logits [batch, classes].
class Vit final : public weft::Module {
 public:
  explicit Vit(const VitConfig& config) : config_(config) {
    const weft::TransformerConfig encoder = config.encoder();
    embed_ = add("embed", std::make_shared<PatchEmbedding>(config));
    layers_ = add("layers", std::make_shared<weft::Sequential>());
    for (int64_t i = 0; i < config.layers; ++i) {
      layers_->append(weft::transformer_block(encoder, i));
    }
    norm_ = add("norm", std::make_shared<weft::LayerNorm>(config.dim, encoder.norm_eps));
    classifier_ =
        add("classifier", std::make_shared<weft::Linear>(config.dim, config.classes, true, 0.02));
  }

  /// The groups for `fully_shard`, before the whole model.
  std::vector<std::vector<weft::Module*>> units() {
    std::vector<std::vector<weft::Module*>> units;
    for (const auto& [name, block] : layers_->children()) units.push_back({block.get()});
    units.push_back({embed_.get()});
    units.push_back({norm_.get(), classifier_.get()});
    return units;
  }
  /// The styles of the blocks, as `transformer_styles` states them.
  std::vector<weft::ModuleStyle> styles() const {
    static const std::string kModel = "model.";
    std::vector<weft::ModuleStyle> own;
    for (const weft::ModuleStyle& style : weft::transformer_styles(config_.encoder())) {
      if (!style.path.starts_with("model.layers.")) continue;
      own.push_back({style.path.substr(kModel.size()), style.style});
    }
    return own;
  }

 protected:
  weft::Tensors forward(const weft::Tensors& inputs) override {
    const weft::Tensor hidden = (*layers_)((*embed_)(inputs[0]));
    const weft::Tensor first = weft::slice(hidden, 1, 0, 1);
    return {(*classifier_)((*norm_)(weft::reshape(first, {first.size(0), first.size(2)})))};
  }

 private:
  VitConfig config_;
  std::shared_ptr<weft::Module> embed_, norm_, classifier_;
  std::shared_ptr<weft::Sequential> layers_;
};

/// The name of a parameter in a file of transformers.
inline std::string name_in_vit_file(std::string name) {
  static const std::pair<std::string, std::string> kNames[] = {
      {"embed.projection", "vit.embeddings.patch_embeddings.projection"},
      {"embed.", "vit.embeddings."},
      {"layers.", "vit.encoder.layer."},
      {"input_layernorm", "layernorm_before"},
      {"post_attention_layernorm", "layernorm_after"},
      {"self_attn.q_proj", "attention.attention.query"},
      {"self_attn.k_proj", "attention.attention.key"},
      {"self_attn.v_proj", "attention.attention.value"},
      {"self_attn.o_proj", "attention.output.dense"},
      {"mlp.up_proj", "intermediate.dense"},
      {"mlp.down_proj", "output.dense"}};
  for (const auto& [ours, theirs] : kNames) {
    const size_t at = name.find(ours);
    if (at == std::string::npos || name.starts_with("vit.embeddings")) continue;
    name.replace(at, ours.size(), theirs);
  }
  return name.starts_with("norm.") ? "vit.layer" + name : name;
}

/// Fills the model from a directory or file of transformers' ViTForImageClassification in f32. Each
/// rank reads the elements that it holds.
inline void load_vit(Vit& model, const std::string& path) {
  const weft::TensorFiles files(path);
  for (const auto& [name, tensor] : weft::state_dict(model).tensors) {
    const std::string in_file = name_in_vit_file(name);
    const weft::SafetensorsEntry& entry = files.entry(in_file);
    weft::Box box = tensor.box();
    const bool fits = entry.shape.product() == tensor.shape().product() &&
                      entry.shape[0] == tensor.shape()[0] && entry.dtype == tensor.dtype();
    if (!fits) {
      weft::fail("vit: ", in_file, " is ", entry.shape, " of ", entry.dtype, ", expected ",
                 tensor.shape(), " of ", tensor.dtype());
    }
    if (entry.shape.ndim() == 4) {  // the convolution's kernel, whole rows of which are read
      box.offset = {box.offset[0], 0, 0, 0};
      box.shape = {box.shape[0], entry.shape[1], entry.shape[2], entry.shape[3]};
    }
    files.read_box(in_file, box, tensor.block().data);
  }
}
