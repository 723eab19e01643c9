// SPDX-License-Identifier: Apache-2.0
#include "nn/families.h"

namespace weft::families {

/// Biases everywhere, layer norms, a plain feed-forward.
static C plain_defaults() {
  C c;
  c.norm = NormKind::layer, c.gated = false, c.activation = Activation::gelu;
  c.norm_bias = c.qkv_bias = c.output_bias = c.mlp_bias = true;
  return c;
}

static Family gpt2() {
  C c = plain_defaults();
  c.max_sequence = 1024, c.tied = c.learned_positions = true, c.rotary_fraction = 0;
  c.activation = Activation::gelu_tanh;
  c.embedding_dropout = c.residual_dropout = c.attention_dropout = 0.1;
  Family f{"gpt2",
           "GPT2LMHeadModel",
           c,
           {{"n_embd", &C::dim, kRequired},
            {"n_layer", &C::layers, kRequired},
            {"n_head", &C::heads, kRequired},
            {"n_inner", &C::ffn, kOrNone},
            {"vocab_size", &C::vocabulary, kRequired},
            {"n_positions", &C::max_sequence},
            {"layer_norm_epsilon", &C::norm_eps},
            {"activation_function", &C::activation},
            {"tie_word_embeddings", &C::tied},
            {"initializer_range", &C::deviation},
            {"embd_pdrop", &C::embedding_dropout},
            {"resid_pdrop", &C::residual_dropout},
            {"attn_pdrop", &C::attention_dropout}}};
  f.fixed = {{"scale_attn_weights", true},
             {"scale_attn_by_inverse_layer_idx", false},
             {"add_cross_attention", false}};
  f.has_padding = false;
  f.complete = [](const ConfigFile&, C& own) { own.ffn = own.ffn == 0 ? 4 * own.dim : own.ffn; };
  f.base = "transformer.", f.blocks = "transformer.h.";
  f.names = with(qkv("attn.c_attn", kColumns), {{"model.embed_tokens", "transformer.wte"},
                                                {"model.embed_positions", "transformer.wpe"},
                                                {"model.norm", "transformer.ln_f"},
                                                {"input_layernorm", "ln_1"},
                                                {"post_attention_layernorm", "ln_2"},
                                                {"self_attn.o_proj", "attn.c_proj", kColumns},
                                                {"mlp.up_proj", "mlp.c_fc", kColumns},
                                                {"mlp.down_proj", "mlp.c_proj", kColumns}});
  return f;
}

static Family gpt_neox() {
  C c = plain_defaults();
  c.rotary_fraction = 0.25, c.parallel_residual = true;
  Family f{
      "gpt_neox", "GPTNeoXForCausalLM", c,
      with(with(sizes(), attention_bias()), {{"layer_norm_eps", &C::norm_eps},
                                             {"hidden_act", &C::activation},
                                             {"rotary_pct", &C::rotary_fraction},
                                             {"rotary_emb_base", &C::rope_theta},
                                             {"use_parallel_residual", &C::parallel_residual},
                                             {"attention_dropout", &C::attention_dropout, kOrNone},
                                             {"hidden_dropout", &C::residual_dropout},
                                             {"hidden_dropout", &C::embedding_dropout}})};
  f.fixed = {{"is_decoder", false}};
  f.has_padding = false;
  f.base = "gpt_neox.", f.blocks = "gpt_neox.layers.";
  f.names =
      with(qkv("attention.query_key_value", kHeads), {{"model.embed_tokens", "gpt_neox.embed_in"},
                                                      {"model.norm", "gpt_neox.final_layer_norm"},
                                                      {"lm_head", "embed_out"},
                                                      {"lm_head", "lm_head"},
                                                      {"self_attn.o_proj", "attention.dense"},
                                                      {"mlp.up_proj", "mlp.dense_h_to_4h"},
                                                      {"mlp.down_proj", "mlp.dense_4h_to_h"}});
  return f;
}

static Family starcoder2() {
  C c = plain_defaults();
  c.activation = Activation::gelu_tanh, c.max_sequence = 4096, c.kv_heads = 2, c.tied = true;
  c.deviation = 0.018042;
  Family f{"starcoder2", "Starcoder2ForCausalLM", c,
           with(llama_like("norm_epsilon"), {{"residual_dropout", &C::residual_dropout},
                                             {"embedding_dropout", &C::embedding_dropout},
                                             {"use_bias", &C::qkv_bias},
                                             {"use_bias", &C::output_bias},
                                             {"use_bias", &C::mlp_bias},
                                             window()})};
  f.fixed = {{"mlp_type", "default"}, {"norm_type", "layer_norm"}};
  f.names = {{"mlp.up_proj", "mlp.c_fc"}, {"mlp.down_proj", "mlp.c_proj"}};
  return f;
}

static Family stablelm() {
  C c = plain_defaults();
  c.qkv_bias = c.output_bias = c.mlp_bias = false, c.gated = true, c.kv_heads = 32;
  c.activation = Activation::silu, c.rotary_fraction = 0.25, c.max_sequence = 4096;
  Family f{"stablelm", "StableLmForCausalLM", c,
           with(sizes(), {{"num_key_value_heads", &C::kv_heads, kOrNone},
                          {"hidden_act", &C::activation},
                          {"layer_norm_eps", &C::norm_eps},
                          {"rope_theta", &C::rope_theta},
                          {"partial_rotary_factor", &C::rotary_fraction},
                          {"attention_dropout", &C::attention_dropout, kOrNone},
                          {"use_qkv_bias", &C::qkv_bias}})};
  f.fixed = {{"use_parallel_residual", false}, {"qk_layernorm", false}, {"hidden_dropout", 0.0}};
  return f;
}

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
  c.padding = 0, c.rotary_fraction = 0, c.token_types = 2, c.head_bias = c.transform_bias = true;
  c.embedding_dropout = c.residual_dropout = c.attention_dropout = 0.1;
  Family f{"bert", "BertForMaskedLM", c,
           with(sizes(), {{"hidden_act", &C::activation},
                          {"hidden_act", &C::head_activation},
                          {"layer_norm_eps", &C::norm_eps},
                          {"type_vocab_size", &C::token_types},
                          {"hidden_dropout_prob", &C::residual_dropout},
                          {"hidden_dropout_prob", &C::embedding_dropout},
                          {"attention_probs_dropout_prob", &C::attention_dropout}})};
  f.fixed = {{"position_embedding_type", "absolute"},
             {"is_decoder", false},
             {"add_cross_attention", false}};
  f.complete = [](const ConfigFile& file, C& own) {
    complete_head(file, own, "BertForMaskedLM", "BertModel", Head::pooler);
  };
  f.write = [](const C& own, nlohmann::ordered_json& json) {
    if (own.head != Head::transform) json["architectures"] = {"BertModel"};
  };
  f.base = "bert.", f.blocks = "bert.encoder.layer.";
  f.names = {{"model.embed_tokens", "bert.embeddings.word_embeddings"},
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
             {"lm_head", "cls.predictions.decoder"}};
  return f;
}

static Family modernbert() {
  C c = plain_defaults();
  c.norm_bias = c.qkv_bias = c.output_bias = c.mlp_bias = false, c.gated = true;
  c.max_sequence = 8192, c.tied = true, c.causal = false, c.embedding_norm = true;
  c.first_norm = false, c.head_bias = true;
  c.rope_theta = 160000, c.local_rope_theta = 10000, c.padding = 50283;
  Family f{"modernbert", "ModernBertForMaskedLM", c,
           with(with(sizes(), attention_bias()), {{"hidden_activation", &C::activation},
                                                  {"classifier_activation", &C::head_activation},
                                                  {"norm_eps", &C::norm_eps},
                                                  {"norm_bias", &C::norm_bias},
                                                  mlp_bias(),
                                                  {"decoder_bias", &C::head_bias},
                                                  {"classifier_bias", &C::transform_bias},
                                                  {"global_rope_theta", &C::rope_theta},
                                                  {"local_rope_theta", &C::local_rope_theta},
                                                  {"embedding_dropout", &C::embedding_dropout}})};
  f.fixed = {{"mlp_dropout", 0.0}, {"attention_dropout", 0.0}};
  f.is_windowed = [](const ConfigFile& file, int64_t layer) {
    const int64_t every = file.integer("global_attn_every_n_layers", 3);
    return every < 1 || layer % every != 0;
  };
  f.complete = [](const ConfigFile& file, C& own) {
    complete_head(file, own, "ModernBertForMaskedLM", "ModernBertModel", Head::none);
    own.window = file.integer("local_attention", 128) / 2 + 1;
  };
  f.write = write_modernbert;
  f.names =
      with(fused("attn.Wqkv", "mlp.Wi"), {{"model.embed_tokens", "model.embeddings.tok_embeddings"},
                                          {"model.embed_norm", "model.embeddings.norm"},
                                          {"model.norm", "model.final_norm"},
                                          {"self_attn.o_proj", "attn.Wo"},
                                          {"mlp.down_proj", "mlp.Wo"},
                                          {"input_layernorm", "attn_norm"},
                                          {"post_attention_layernorm", "mlp_norm"},
                                          {"head_dense", "head.dense"},
                                          {"head_norm", "head.norm"},
                                          {"lm_head", "decoder"}});
  return f;
}

std::vector<Family> plain() {
  return {gpt2(), gpt_neox(), starcoder2(), stablelm(), bert(), modernbert()};
}

}  // namespace weft::families
