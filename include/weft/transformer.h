// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/module.h"

namespace weft {

/// Sizes and hyperparameters of a Llama.
struct TransformerConfig {
  int64_t dim = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  /// Heads of keys and values, each shared by heads / kv_heads query heads.
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  /// Hidden width of the gated feed-forward.
  int64_t ffn = 0;
  int64_t vocabulary = 0;
  /// The longest sequence that forward accepts.
  int64_t max_sequence = 2048;
  double rope_theta = 10000;
  double norm_eps = 1e-5;
  /// The head uses the weight of the embedding.
  bool tied = false;
  /// Standard deviation of the initial values of all matrices.
  double deviation = 0.02;
  bool operator==(const TransformerConfig&) const = default;
};

/// Reads a configuration. `source` is "tiny", "small", a Hugging Face config.json or a directory
/// that contains one. std::invalid_argument names the file, the key and what is wrong: a key that
/// is missing or of the wrong type, sizes that do not fit each other, or an unsupported feature
/// (scaled rope, biases, another activation).
WEFT_API TransformerConfig transformer_config(const std::string& source);

/// Floating-point operations per token of training, forward and backward, in rows of `sequence`
/// tokens: 6 per parameter except those of an untied embedding table, plus 12 x layers x width of
/// the heads x sequence for attention, where masked positions count (Chowdhery et al. 2022, PaLM,
/// appendix B). Recompute does not count.
WEFT_API double training_operations_a_token(const TransformerConfig& config, int64_t sequence);

/// The decoder of Touvron et al. (2023): grouped-query attention, rope, SwiGLU, RMSNorm. The names
/// of the parameters are those of Hugging Face ("model.layers.0.self_attn.q_proj.weight").
class WEFT_API TransformerModel : public Module {
 public:
  /// std::invalid_argument when the sizes do not fit each other.
  explicit TransformerModel(const TransformerConfig& config);

  const TransformerConfig& config() const { return config_; }
  /// The decoder layers, "model.layers.<i>", first to last.
  std::vector<Module*> blocks();

  /// Mean cross entropy of the logits of `ids` [batch, sequence] against `targets` [batch,
  /// sequence]. Targets equal to kIgnoredTarget do not count.
  Tensor loss(const Tensor& ids, const Tensor& targets);

 protected:
  /// {ids [batch, sequence]} -> {logits [batch, sequence, vocabulary]}.
  Tensors forward(const Tensors& inputs) override;

 private:
  void check_ids(const Tensors& inputs) const;

  TransformerConfig config_;
  std::shared_ptr<Module> model_;
  std::shared_ptr<Module> head_;
};

}  // namespace weft
