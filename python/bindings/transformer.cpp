// SPDX-License-Identifier: Apache-2.0
#include "weft/transformer.h"

#include <algorithm>

#include "python/bindings/fields.h"
#include "python/bindings/lock.h"
#include "python/bindings/modules.h"

namespace weft::python {

using ConfigClass = py::class_<TransformerConfig>;

/// A field of an enum, as one of `names` in order.
template <class E>
static void bind_choice(ConfigClass& config, const char* name, E TransformerConfig::*field,
                        const std::vector<std::string>& names) {
  config.def_property(
      name,
      [field, names](const TransformerConfig& c) { return names[static_cast<size_t>(c.*field)]; },
      [field, names, what = std::string(name)](TransformerConfig& c, const std::string& value) {
        const auto found = std::find(names.begin(), names.end(), value);
        if (found == names.end()) {
          std::string known;
          for (const std::string& each : names) known += (known.empty() ? "" : ", ") + each;
          fail("transformer_config: ", what, " is ", in_quotes(value), ", expected one of ", known);
        }
        c.*field = static_cast<E>(found - names.begin());
      });
}

static void bind_choices(ConfigClass& config) {
  using C = TransformerConfig;
  bind_choice(config, "norm", &C::norm, {"rms", "rms_plus_one", "layer"});
  bind_choice(config, "norm_place", &C::norm_place, {"before", "after", "both", "after_sum"});
  bind_choice(config, "query_norm", &C::query_norm, {"none", "head", "width"});
  const std::vector<std::string> activations = {"silu", "gelu", "gelu_tanh", "relu"};
  bind_choice(config, "activation", &C::activation, activations);
  bind_choice(config, "head_activation", &C::head_activation, activations);
  bind_choice(config, "head", &C::head, {"linear", "transform", "none", "pooler"});
  const auto fields = [&](const auto&... pairs) {
    (config.def_readwrite(pairs.first, pairs.second), ...);
  };
  const auto field = [](const char* name, auto member) { return std::pair(name, member); };
  fields(field("family", &C::family), field("norm_bias", &C::norm_bias),
         field("qkv_bias", &C::qkv_bias), field("output_bias", &C::output_bias),
         field("mlp_bias", &C::mlp_bias), field("head_bias", &C::head_bias),
         field("transform_bias", &C::transform_bias), field("gated", &C::gated),
         field("parallel_residual", &C::parallel_residual),
         field("rotary_fraction", &C::rotary_fraction),
         field("local_rope_theta", &C::local_rope_theta), field("unrotated", &C::unrotated),
         field("learned_positions", &C::learned_positions), field("causal", &C::causal),
         field("window", &C::window), field("windowed", &C::windowed), field("sinks", &C::sinks),
         field("attention_softcap", &C::attention_softcap),
         field("logit_softcap", &C::logit_softcap), field("attention_scale", &C::attention_scale),
         field("embedding_scale", &C::embedding_scale), field("residual_scale", &C::residual_scale),
         field("logit_divisor", &C::logit_divisor), field("token_types", &C::token_types),
         field("embedding_norm", &C::embedding_norm), field("first_norm", &C::first_norm),
         field("final_norm", &C::final_norm), field("embedding_dropout", &C::embedding_dropout),
         field("residual_dropout", &C::residual_dropout),
         field("attention_dropout", &C::attention_dropout), field("experts", &C::experts),
         field("experts_per_token", &C::experts_per_token), field("dense", &C::dense),
         field("expert_ffn", &C::expert_ffn), field("shared_ffn", &C::shared_ffn),
         field("shared_gate", &C::shared_gate), field("sigmoid_router", &C::sigmoid_router),
         field("f32_router", &C::f32_router), field("normalized_weights", &C::normalized_weights),
         field("routed_scale", &C::routed_scale), field("expert_groups", &C::expert_groups),
         field("top_groups", &C::top_groups), field("balance_loss", &C::balance_loss),
         field("balance_coefficient", &C::balance_coefficient),
         field("expert_chunks", &C::expert_chunks), field("kv_lora_rank", &C::kv_lora_rank),
         field("q_lora_rank", &C::q_lora_rank), field("nope_head_dim", &C::nope_head_dim),
         field("value_head_dim", &C::value_head_dim),
         field("rope_interleave", &C::rope_interleave));
}

/// The default of head_dim.
static TransformerConfig with_head_dim(TransformerConfig config) {
  if (config.head_dim <= 0 && config.heads != 0) config.head_dim = config.dim / config.heads;
  return config;
}

static void bind_config(py::module_& m) {
  using C = TransformerConfig;
  ConfigClass config(m, "TransformerConfig",
                     "Sizes and choices of a TransformerModel; the defaults are those of a Llama");
  const auto bind_sizes = [&](const auto&... fields) {
    bind_constructor<C>(config, with_head_dim, py::kw_only(), fields...,
                        "head_dim 0 means dim / heads");
    (config.def_readwrite(fields.argument.name, fields.member), ...);
  };
  bind_sizes(needed("dim", &C::dim), needed("layers", &C::layers), needed("heads", &C::heads),
             needed("kv_heads", &C::kv_heads), needed("ffn", &C::ffn),
             needed("vocabulary", &C::vocabulary), option("head_dim", &C::head_dim),
             option("max_sequence", &C::max_sequence), option("rope_theta", &C::rope_theta),
             option("norm_eps", &C::norm_eps), option("tied", &C::tied),
             option("std", &C::deviation));
  config.def("__eq__", [](const C& a, const C& b) { return a == b; });
  bind_choices(config);
  m.def("config_json", &config_json, py::arg("config"), py::arg("dtype") = "",
        "The text of the config.json from which transformer_config reads the same");
  m.def("transformer_families", &transformer_families,
        "The values of \"model_type\" in config.json that are known");
}

static void bind_block(py::module_& m) {
  m.def("transformer_block", &transformer_block, py::arg("config"), py::arg("layer") = 0,
        "One block, for models with other inputs and outputs than TransformerModel: hidden states "
        "[batch, sequence, dim], and the mask of an encoder, to hidden states");
}

template <class L> static std::unique_ptr<L> transformer_of(const std::string& source) {
  return std::make_unique<L>(transformer_config(source));
}

void bind_transformer(py::module_& m) {
  bind_config(m);
  bind_block(m);
  m.def("transformer_config", &transformer_config, py::arg("source"),
        "`source` is 'tiny', 'small', a Hugging Face config.json or a directory that holds one. "
        "ValueError names the file, the key and what is wrong");
  bind_module_class<TransformerModel>(
      m, "TransformerModel",
      "A transformer as its config states, of any family; parameters are named as in Hugging "
      "Face's Llama. {ids [batch, sequence]} -> logits [batch, sequence, vocabulary]; an encoder "
      "also takes a mask and token types, and without a head gives hidden states [batch, sequence, "
      "dim] and, with a pooler, the pooled first token [batch, dim]")
      .def(py::init<const TransformerConfig&>(), py::arg("config"))
      .def(py::init(&transformer_of<TransformerModel>, &transformer_of<InPython<TransformerModel>>),
           py::arg("source"))
      .def_property_readonly("config", &TransformerModel::config)
      .def(
          "blocks",
          [](const ModuleObject& self) {
            const auto tree = tree_of<TransformerModel>(self);
            std::vector<std::shared_ptr<Module>> all;
            for (Module* block : tree->blocks()) all.push_back(part_of(tree, block));
            return all;
          },
          "The decoder layers, first to last")
      .def(
          "units",
          [](const ModuleObject& self) {
            const auto tree = tree_of<TransformerModel>(self);
            std::vector<std::vector<std::shared_ptr<Module>>> all;
            for (const auto& unit : tree->units()) {
              all.emplace_back();
              for (Module* part : unit) all.back().push_back(part_of(tree, part));
            }
            return all;
          },
          "The lists of modules to pass to fully_shard, before the whole model: each block, the "
          "token embedding, and the final norm with the head; of a tied model the blocks only")
      .def("loss", &TransformerModel::loss, Released(), py::arg("ids"), py::arg("targets"),
           "Mean cross entropy of the logits of ids [batch, sequence] against targets (alike); "
           "those that are -100 do not count");
}

}  // namespace weft::python
