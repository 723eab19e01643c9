// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/export.h"

namespace weft {

/// rms: x / sqrt(mean of x^2) * weight; rms_plus_one: the same with 1 + weight; layer: with mean,
/// and a bias.
enum class NormKind : uint8_t { rms, rms_plus_one, layer };
/// The values that a block normalises: the inputs of attention and feed-forward, their outputs,
/// both, or the sums after adding the outputs to the inputs.
enum class NormPlace : uint8_t { before, after, both, after_sum };
/// Norms of queries and keys: none, of each head, or over the width of all heads.
enum class QueryNorm : uint8_t { none, head, width };
enum class Activation : uint8_t { silu, gelu, gelu_tanh, relu };
/// The end of the model. transform: a head after a linear layer, an activation and a norm;
/// none: no head; pooler: none, but a pooled first token.
enum class Head : uint8_t { linear, transform, none, pooler };

/// The stretching of rotary frequencies to longer sequences.
enum class RopeScalingKind : uint8_t { none, linear, dynamic, llama3, yarn, longrope };
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::none;
  double factor = 1;
  /// The longest sequence before scaling.
  int64_t original_max = 0;
  /// llama3: the range of frequencies that are interpolated.
  double low_frequency = 1, high_frequency = 4;
  /// yarn: the same in rotations, rounded to whole pairs if `truncate`.
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  /// yarn: they determine the attention factor, when both are set.
  double mscale = 0, mscale_all_dim = 0;
  /// yarn, longrope: factor of rotated queries and keys; 0: the one that follows from `factor`.
  double attention_factor = 0;
  /// longrope: divisors of the frequencies, for sequences up to original_max and longer ones.
  std::vector<double> short_factor = {}, long_factor = {};
  bool operator==(const RopeScaling&) const = default;
};

/// Sizes and choices of a transformer. The defaults are those of a Llama.
struct TransformerConfig {
  /// `kv_heads`: heads of keys and values, each shared by heads / kv_heads query heads; `ffn`: the
  /// hidden width of the feed-forward.
  int64_t dim = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocabulary = 0;
  /// The longest sequence that forward accepts.
  int64_t max_sequence = 2048;
  double rope_theta = 10000, norm_eps = 1e-5;
  /// The head uses the weight of the embedding.
  bool tied = false;
  /// Standard deviation of the initial values of all matrices.
  double deviation = 0.02;

  /// The names of Hugging Face's files and config keys: a "model_type".
  std::string family = "llama";
  NormKind norm = NormKind::rms;
  NormPlace norm_place = NormPlace::before;
  bool norm_bias = false;
  QueryNorm query_norm = QueryNorm::none;
  /// Biases of queries, keys and values; of the attention's output; of the feed-forward; of the
  /// head; and of the head's transform.
  bool qkv_bias = false, output_bias = false, mlp_bias = false, head_bias = false;
  bool transform_bias = false;
  Activation activation = Activation::silu;
  /// down(activation(gate x) * up x), or without: down(activation(up x)).
  bool gated = true;
  /// Attention and feed-forward have the same input, and both outputs are added to it.
  bool parallel_residual = false;
  Head head = Head::linear;
  Activation head_activation = Activation::gelu;

  /// Fraction of each head that rotates; 0: none.
  double rotary_fraction = 1;
  RopeScaling rope_scaling = {};
  /// Theta, unscaled, of the layers with a window; 0: as in the others.
  double local_rope_theta = 0;
  /// Layers without rotation, one flag a layer; empty: all rotate.
  std::vector<bool> unrotated = {};
  /// Positions are embedded by a table [max_sequence, dim] that is added to the tokens.
  bool learned_positions = false;

  /// Later tokens are masked.
  bool causal = true;
  /// Query i attends keys j with i - window < j; without `causal` |i - j| < window. 0: all.
  int64_t window = 0;
  /// Layers that have the window, one flag a layer; empty: all.
  std::vector<bool> windowed = {};
  /// Scores and logits become c * tanh(x / c); 0: they stay.
  double attention_softcap = 0, logit_softcap = 0;
  /// Each head has a learned number, one more logit without a value in the softmax of its scores.
  bool sinks = false;
  /// Factor of the scores; 0: 1 / sqrt(head_dim).
  double attention_scale = 0;
  /// Factor of the embedded tokens, of what a block adds, and divisor of the logits.
  double embedding_scale = 1, residual_scale = 1, logit_divisor = 1;

  /// Experts of each sparse layer's feed-forward (`MoE`), of which a token uses some; 0: all layers
  /// are dense.
  int64_t experts = 0, experts_per_token = 2;
  /// Layers whose feed-forward is dense all the same, one flag a layer; empty: none.
  std::vector<bool> dense = {};
  /// Width of an expert, and of the expert that computes all tokens (0: none), whose result a gate
  /// multiplies if `shared_gate`.
  int64_t expert_ffn = 0, shared_ffn = 0;
  bool shared_gate = false;
  /// Scores are sigmoids, not a softmax; a bias that balances the load is added for the choice; a
  /// group counts by its best two experts (DeepSeek-V3).
  bool sigmoid_router = false;
  bool f32_router = false;  ///< logits are f32 in models of a smaller dtype (DeepSeek)
  /// A token's weights are divided by their sum, and multiplied by `routed_scale`.
  bool normalized_weights = true;
  double routed_scale = 1;
  /// A token's experts come from the best `top_groups` of these groups.
  int64_t expert_groups = 1, top_groups = 1;
  /// `loss` adds `balance_coefficient` times the balance loss of the routers of all layers.
  bool balance_loss = false;
  double balance_coefficient = 0.001;
  /// Parts of the sequences that go through the experts one after the other (`MoEConfig::chunks`):
  /// how a model runs, which its config.json does not state.
  int64_t expert_chunks = 1;

  /// Widths of the latents of keys and values, and of queries (0: none), in attention of the kind
  /// of DeepSeek-V2 (`LatentAttention`); 0: plain attention. With it `head_dim` counts the rotated
  /// dims of a head only.
  int64_t kv_lora_rank = 0, q_lora_rank = 0;
  /// Dims of a head that do not rotate, and those of its values.
  int64_t nope_head_dim = 0, value_head_dim = 0;
  /// Pairs of rotated dims are neighbours in the weights.
  bool rope_interleave = true;

  /// The token whose row of the table begins as zeros and has no gradient (`pad_token_id`).
  std::optional<int64_t> padding = {};
  /// Rows of the table of token types, of which the first is added to all tokens; 0: none.
  int64_t token_types = 0;
  bool embedding_norm = false;  ///< the sum of the embeddings is normalised
  /// The first block does not normalise the input of its attention.
  bool first_norm = true;
  bool final_norm = true;
  /// Probabilities of dropout while training.
  double embedding_dropout = 0, residual_dropout = 0, attention_dropout = 0;
  /// True when layer i has experts.
  bool is_sparse(int64_t layer) const {
    return experts > 0 && (dense.empty() || !dense[static_cast<size_t>(layer)]);
  }
  /// True when it has the window, and when it rotates queries and keys.
  bool has_window(int64_t layer) const {
    return window > 0 && (windowed.empty() || windowed.at(static_cast<size_t>(layer)));
  }
  bool rotates(int64_t layer) const {
    return rotary_fraction > 0 && (unrotated.empty() || !unrotated.at(static_cast<size_t>(layer)));
  }
  bool operator==(const TransformerConfig&) const = default;
};

/// Reads a configuration. `source` is "tiny", "small", a Hugging Face config.json or a directory
/// that contains one. std::invalid_argument names the file, the key and what is wrong: a key that
/// is missing, of the wrong type or not understood, sizes that do not fit each other, or an unknown
/// "model_type".
WEFT_API TransformerConfig transformer_config(const std::string& source);
/// Reads the text of a config.json; `name` stands in errors.
WEFT_API TransformerConfig transformer_config_of(const std::string& json, const std::string& name);
/// Returns the text of the config.json from which `transformer_config` reads the same. `dtype` is
/// that of the weights, as "float32"; empty: left out.
WEFT_API std::string config_json(const TransformerConfig& config, const std::string& dtype = "");
/// Returns the names of the families, sorted.
WEFT_API std::vector<std::string> transformer_families();

/// Rows of a parameter, or of a buffer, in a file's tensor: row r is row offset + r / block *
/// stride + r % block.
struct FilePart {
  /// The parameter's first name in the model.
  std::string parameter;
  int64_t rows = 0, offset = 0, block = 0, stride = 0;
  /// If not negative, the tensor is parameter[slice], as of stacked experts.
  int64_t slice = -1;
};
/// A tensor of a family's files and the parameters in it, which cover it.
struct FileTensor {
  /// The names under which a file may hold it: the first is the one that is written.
  std::vector<std::string> names;
  /// Rows and columns are swapped in the file.
  bool transposed = false;
  std::vector<FilePart> parts;
};
/// Returns the tensors of a Hugging Face model of this config: one for each expert.
WEFT_API std::vector<FileTensor> file_tensors(const TransformerConfig& config);
/// True when a file's tensor has no parameter and may be left out: constants, and heads of
/// pretraining that the model does not have.
WEFT_API bool is_left_out(const TransformerConfig& config, const std::string& name);
/// True when a file's tensor belongs to the layers after the last one that predict further tokens
/// (DeepSeek-V3's multi-token prediction). They are left out.
WEFT_API bool predicts_further_tokens(const TransformerConfig& config, const std::string& name);

}  // namespace weft
