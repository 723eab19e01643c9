// SPDX-License-Identifier: Apache-2.0
#include "nn/families.h"

namespace weft::families {

/// The head follows from the class that the file was saved from.
static void complete_head(const ConfigFile& file, C& c, const std::string& masked,
                          const std::string& bare, Head head) {
  const nlohmann::json classes = file.list("architectures");
  const nlohmann::json name = classes.empty() ? nlohmann::json(bare) : classes[0];
  if (name != masked && name != bare) {
    file.mistake("\"architectures\" is ", printable(name.dump()), ", expected ", masked, " or ",
                 bare);
  }
  c.head = name == masked ? Head::transform : head;
  if (c.head != Head::transform) c.tied = c.head_bias = c.transform_bias = false;
}

static void complete_bert(const ConfigFile& file, C& c) {
  complete_head(file, c, "BertForMaskedLM", "BertModel", Head::pooler);
}

static void complete_modernbert(const ConfigFile& file, C& c) {
  complete_head(file, c, "ModernBertForMaskedLM", "ModernBertModel", Head::none);
  c.window = file.integer("local_attention", 128) / 2 + 1;
}

static void write_bert(const C& c, nlohmann::ordered_json& json) {
  if (c.head != Head::transform) json["architectures"] = {"BertModel"};
}

static void write_modernbert(const C& c, nlohmann::ordered_json& json) {
  if (c.head != Head::transform) json["architectures"] = {"ModernBertModel"};
  if (c.window > 0) json["local_attention"] = 2 * (c.window - 1);
  if (!json.contains("rope_scaling")) return;
  // transformers would scale the layers with a window as well.
  const nlohmann::ordered_json scaling = json["rope_scaling"];
  json["rope_parameters"]["full_attention"] = scaling;
  json.erase("rope_scaling");
}

static Family bert() {
  C c = plain_defaults();
  c.norm_place = NormPlace::after_sum, c.norm_eps = 1e-12, c.max_sequence = 512, c.tied = true;
  c.causal = c.final_norm = false, c.learned_positions = c.embedding_norm = true;
  c.rotary_fraction = 0, c.token_types = 2, c.head_bias = c.transform_bias = true;
  c.embedding_dropout = c.residual_dropout = c.attention_dropout = 0.1;
  return {.type = "bert",
          .architecture = "BertForMaskedLM",
          .defaults = c,
          .keys = with(sizes(), {{"hidden_act", &C::activation},
                                 {"hidden_act", &C::head_activation},
                                 {"layer_norm_eps", &C::norm_eps},
                                 {"type_vocab_size", &C::token_types},
                                 {"hidden_dropout_prob", &C::residual_dropout},
                                 {"hidden_dropout_prob", &C::embedding_dropout},
                                 {"attention_probs_dropout_prob", &C::attention_dropout}}),
          .fixed = {{"position_embedding_type", "absolute"},
                    {"is_decoder", false},
                    {"add_cross_attention", false}},
          .complete = complete_bert,
          .write = write_bert,
          .base = "bert.",
          .blocks = "bert.encoder.layer.",
          .names = {{"model.embed_tokens", "bert.embeddings.word_embeddings"},
                    {"model.embed_positions", "bert.embeddings.position_embeddings"},
                    {"model.embed_types", "bert.embeddings.token_type_embeddings"},
                    {"model.embed_norm", "bert.embeddings.LayerNorm"},
                    {"self_attn.q_proj", "attention.self.query"},
                    {"self_attn.k_proj", "attention.self.key"},
                    {"self_attn.v_proj", "attention.self.value"},
                    {"self_attn.o_proj", "attention.output.dense"},
                    {"post_attention_layernorm", "attention.output.LayerNorm"},
                    {"mlp.up_proj", "intermediate.dense"},
                    {"mlp.down_proj", "output.dense"},
                    {"post_feedforward_layernorm", "output.LayerNorm"},
                    {"pooler", "bert.pooler.dense"},
                    {"head_dense", "cls.predictions.transform.dense"},
                    {"head_norm", "cls.predictions.transform.LayerNorm"},
                    {"lm_head.bias", "cls.predictions.bias"},
                    {"lm_head", "cls.predictions.decoder"}}};
}

static Family modernbert() {
  C c = plain_defaults();
  c.norm_bias = c.qkv_bias = c.output_bias = c.mlp_bias = false, c.gated = true;
  c.max_sequence = 8192, c.tied = true, c.causal = false, c.embedding_norm = true;
  c.first_norm = false, c.head_bias = true;
  c.rope_theta = 160000, c.local_rope_theta = 10000;
  Names names = fused("attn.Wqkv", "mlp.Wi");
  const Names others = {{"model.embed_tokens", "model.embeddings.tok_embeddings"},
                        {"model.embed_norm", "model.embeddings.norm"},
                        {"model.norm", "model.final_norm"},
                        {"self_attn.o_proj", "attn.Wo"},
                        {"mlp.down_proj", "mlp.Wo"},
                        {"input_layernorm", "attn_norm"},
                        {"post_attention_layernorm", "mlp_norm"},
                        {"head_dense", "head.dense"},
                        {"head_norm", "head.norm"},
                        {"lm_head", "decoder"}};
  names.insert(names.end(), others.begin(), others.end());
  return {
      .type = "modernbert",
      .architecture = "ModernBertForMaskedLM",
      .defaults = c,
      .keys = with(with(sizes(), attention_bias()), {{"hidden_activation", &C::activation},
                                                     {"classifier_activation", &C::head_activation},
                                                     {"norm_eps", &C::norm_eps},
                                                     {"norm_bias", &C::norm_bias},
                                                     mlp_bias(),
                                                     {"decoder_bias", &C::head_bias},
                                                     {"classifier_bias", &C::transform_bias},
                                                     {"global_rope_theta", &C::rope_theta},
                                                     {"local_rope_theta", &C::local_rope_theta},
                                                     {"embedding_dropout", &C::embedding_dropout}}),
      .fixed = {{"mlp_dropout", 0.0}, {"attention_dropout", 0.0}},
      .is_windowed =
          [](const ConfigFile& file, int64_t layer) {
            const int64_t every = file.integer("global_attn_every_n_layers", 3);
            return every < 1 || layer % every != 0;
          },
      .complete = complete_modernbert,
      .write = write_modernbert,
      .names = names};
}

std::vector<Family> encoders() { return {bert(), modernbert()}; }

}  // namespace weft::families
