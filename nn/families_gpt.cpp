// SPDX-License-Identifier: Apache-2.0
#include "nn/families.h"

namespace weft::families {

static void complete_gpt2(const ConfigFile&, C& c) {
  if (c.ffn == 0) c.ffn = 4 * c.dim;
}

std::vector<Family> gpts() {
  C gpt2 = plain_defaults(), neox = gpt2, starcoder2 = gpt2, stablelm = gpt2;
  gpt2.max_sequence = 1024, gpt2.tied = true, gpt2.activation = Activation::gelu_tanh;
  gpt2.learned_positions = true, gpt2.rotary_fraction = 0;
  gpt2.embedding_dropout = gpt2.residual_dropout = gpt2.attention_dropout = 0.1;
  neox.rotary_fraction = 0.25, neox.parallel_residual = true;
  starcoder2.activation = Activation::gelu_tanh, starcoder2.max_sequence = 4096;
  starcoder2.kv_heads = 2, starcoder2.tied = true, starcoder2.deviation = 0.018042;
  stablelm.qkv_bias = stablelm.output_bias = stablelm.mlp_bias = false, stablelm.gated = true;
  stablelm.activation = Activation::silu, stablelm.rotary_fraction = 0.25;
  stablelm.max_sequence = 4096, stablelm.kv_heads = 32;
  return {
      {.type = "gpt2",
       .architecture = "GPT2LMHeadModel",
       .defaults = gpt2,
       .keys = {{"n_embd", &C::dim, kRequired},
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
                {"attn_pdrop", &C::attention_dropout}},
       .fixed = {{"scale_attn_weights", true},
                 {"scale_attn_by_inverse_layer_idx", false},
                 {"add_cross_attention", false}},
       .complete = complete_gpt2,
       .base = "transformer.",
       .blocks = "transformer.h.",
       .names = {{"model.embed_tokens", "transformer.wte"},
                 {"model.embed_positions", "transformer.wpe"},
                 {"model.norm", "transformer.ln_f"},
                 {"input_layernorm", "ln_1"},
                 {"post_attention_layernorm", "ln_2"},
                 {"self_attn.q_proj", "attn.c_attn", kColumns},
                 {"self_attn.k_proj", "attn.c_attn", kColumns},
                 {"self_attn.v_proj", "attn.c_attn", kColumns},
                 {"self_attn.o_proj", "attn.c_proj", kColumns},
                 {"mlp.up_proj", "mlp.c_fc", kColumns},
                 {"mlp.down_proj", "mlp.c_proj", kColumns}}},
      {.type = "gpt_neox",
       .architecture = "GPTNeoXForCausalLM",
       .defaults = neox,
       .keys =
           with(with(sizes(), attention_bias()), {{"layer_norm_eps", &C::norm_eps},
                                                  {"hidden_act", &C::activation},
                                                  {"rotary_pct", &C::rotary_fraction},
                                                  {"rotary_emb_base", &C::rope_theta},
                                                  {"use_parallel_residual", &C::parallel_residual},
                                                  {"attention_dropout", &C::attention_dropout},
                                                  {"hidden_dropout", &C::residual_dropout},
                                                  {"hidden_dropout", &C::embedding_dropout}}),
       .fixed = {{"is_decoder", false}},
       .base = "gpt_neox.",
       .blocks = "gpt_neox.layers.",
       .names = {{"model.embed_tokens", "gpt_neox.embed_in"},
                 {"model.norm", "gpt_neox.final_layer_norm"},
                 {"lm_head", "embed_out"},
                 {"lm_head", "lm_head"},
                 {"self_attn.q_proj", "attention.query_key_value", kHeads},
                 {"self_attn.k_proj", "attention.query_key_value", kHeads},
                 {"self_attn.v_proj", "attention.query_key_value", kHeads},
                 {"self_attn.o_proj", "attention.dense"},
                 {"mlp.up_proj", "mlp.dense_h_to_4h"},
                 {"mlp.down_proj", "mlp.dense_4h_to_h"}}},
      {.type = "starcoder2",
       .architecture = "Starcoder2ForCausalLM",
       .defaults = starcoder2,
       .keys = with(sizes(), {{"num_key_value_heads", &C::kv_heads, kOrNone},
                              {"head_dim", &C::head_dim, kOrNone},
                              {"hidden_act", &C::activation},
                              {"norm_epsilon", &C::norm_eps},
                              {"rope_theta", &C::rope_theta},
                              {"attention_dropout", &C::attention_dropout},
                              {"residual_dropout", &C::residual_dropout},
                              {"embedding_dropout", &C::embedding_dropout},
                              {"use_bias", &C::qkv_bias},
                              {"use_bias", &C::output_bias},
                              {"use_bias", &C::mlp_bias},
                              window()}),
       .fixed = {{"mlp_type", "default"}, {"norm_type", "layer_norm"}},
       .names = {{"mlp.up_proj", "mlp.c_fc"}, {"mlp.down_proj", "mlp.c_proj"}}},
      {.type = "stablelm",
       .architecture = "StableLmForCausalLM",
       .defaults = stablelm,
       .keys = with(sizes(), {{"num_key_value_heads", &C::kv_heads, kOrNone},
                              {"hidden_act", &C::activation},
                              {"layer_norm_eps", &C::norm_eps},
                              {"rope_theta", &C::rope_theta},
                              {"partial_rotary_factor", &C::rotary_fraction},
                              {"attention_dropout", &C::attention_dropout},
                              {"use_qkv_bias", &C::qkv_bias}}),
       .fixed = {{"use_parallel_residual", false},
                 {"qk_layernorm", false},
                 {"hidden_dropout", 0.0}}},
  };
}

}  // namespace weft::families
