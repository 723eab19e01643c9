// SPDX-License-Identifier: Apache-2.0
#include "weft/adapters.h"

#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "python/bindings/modules.h"
#include "weft/latent_attention.h"
#include "weft/moe.h"
#include "weft/transformer.h"

namespace weft::python {

template <class S> static std::unique_ptr<S> sequence_of(const py::args& children) {
  auto all = std::make_unique<S>();
  for (const py::handle child : children) {
    all->append(kept_with_object("Sequential", py::reinterpret_borrow<py::object>(child)));
  }
  return all;
}

static void bind_sequential(py::module_& m) {
  auto sequential_class = bind_module_class<Sequential>(
      m, "Sequential", "Children '0', '1', ..., each called with what the one before gave");
  sequential_class.def(py::init(&sequence_of<Sequential>, &sequence_of<InPython<Sequential>>));
  def(sequential_class, "append(module)", "Adds a child at the end",
      [](Sequential& self, const ModuleObject& module) {
        self.append(kept_with_object("append", module));
      });
  sequential_class.def("__len__", [](const Sequential& s) { return s.children().size(); })
      .def("__getitem__", [](const Sequential& s, int64_t i) {
        const auto size = static_cast<int64_t>(s.children().size());
        if (i < -size || i >= size)
          throw py::index_error(
              concat("sequential: index is ", i, ", expected one of ", size, " children"));
        return s.children()[static_cast<size_t>(i < 0 ? i + size : i)].second;
      });
}

static Shape plain(const IntList& sizes) { return Shape(std::span<const int64_t>(sizes)); }
template <class T> static T plain(T value) { return value; }

/// Makes a layer; without a device its parameters have no memory yet.
template <class M, class... Args>
static std::unique_ptr<M> layer_of(Args... args, std::optional<Device> device,
                                   std::optional<DType> dtype) {
  auto layer = std::make_unique<M>(plain(args)...);
  if (dtype) layer->to(*dtype);
  if (device) layer->materialize(*device);
  return layer;
}

/// The factories of a layer and of Python classes derived from it, which take `Args`, a device and
/// a dtype.
template <class M, class... Args> static auto init_of() {
  return py::init(&layer_of<M, Args...>, &layer_of<InPython<M>, Args...>);
}

static int64_t size_of_weight(const Module& layer, int dim) {
  return layer.own_parameters()[0].second->shape()[dim];
}

/// Arguments of PyTorch's embedding that change gradients or the weight, which are not offered.
static void check_embedding_options(const py::object& max_norm, bool scale_grad_by_freq,
                                    bool sparse) {
  if (!max_norm.is_none()) {
    fail("embedding: max_norm is ", py::repr(max_norm), ", expected None; forward changes no row");
  }
  if (scale_grad_by_freq || sparse) {
    fail("embedding: ", sparse ? "sparse" : "scale_grad_by_freq",
         " is True, expected False; gradients are dense sums");
  }
}

template <class M>
static std::unique_ptr<M> embedding_of(int64_t rows, int64_t dim, std::optional<int64_t> padding,
                                       const py::object& max_norm, double /*norm_type*/,
                                       bool scale_grad_by_freq, bool sparse, double deviation,
                                       std::optional<Device> device, std::optional<DType> dtype) {
  check_embedding_options(max_norm, scale_grad_by_freq, sparse);
  return layer_of<M, int64_t, int64_t, double, std::optional<int64_t>>(rows, dim, deviation,
                                                                       padding, device, dtype);
}

static void bind_affine(py::module_& m) {
  const auto device = "device"_a = py::none(), dtype = "dtype"_a = py::none();
  bind_module_class<Linear>(
      m, "Linear",
      "[..., in] -> [..., out]: x weight^T (+ bias). Parameters: weight [out, in] and bias [out], "
      "uniform in +-1 / sqrt(in); with `std`, the weight is normal and the bias 0")
      .def(init_of<Linear, int64_t, int64_t, bool, std::optional<double>>(), "in_features"_a,
           "out_features"_a, "bias"_a = true, "std"_a = py::none(), device, dtype)
      .def_property_readonly("in_features", &in_features)
      .def_property_readonly("out_features", [](const Linear& l) { return size_of_weight(l, 0); })
      .def_property("float8", &Linear::is_float8, &Linear::set_float8,
                    "True when products are computed by float8_linear");
  bind_module_class<Float8Linear, Linear>(
      m, "Float8Linear",
      "A Linear whose products, and those of its gradients, are computed in 8 bits with dynamic "
      "scales: float8_linear")
      .def(init_of<Float8Linear, int64_t, int64_t, bool, std::optional<double>>(), "in_features"_a,
           "out_features"_a, "bias"_a = true, "std"_a = py::none(), device, dtype);
  bind_module_class<Embedding>(
      m, "Embedding",
      "ids [...] -> [..., dim]. Parameter: weight [vocabulary, dim], normal with `std`. Row "
      "`padding_idx` begins as zeros and gets no gradient from here. ValueError for a `max_norm`, "
      "`scale_grad_by_freq` and `sparse`")
      .def(py::init(&embedding_of<Embedding>, &embedding_of<InPython<Embedding>>),
           "num_embeddings"_a, "embedding_dim"_a, "padding_idx"_a = py::none(),
           "max_norm"_a = py::none(), "norm_type"_a = 2.0, "scale_grad_by_freq"_a = false,
           "sparse"_a = false, py::kw_only(), "std"_a = 1.0, device, dtype)
      .def_property_readonly("padding_idx", &Embedding::padding)
      .def_property_readonly("num_embeddings",
                             [](const Embedding& e) { return size_of_weight(e, 0); })
      .def_property_readonly("embedding_dim",
                             [](const Embedding& e) { return size_of_weight(e, 1); });
}

void bind_layers(py::module_& m) {
  bind_affine(m);
  m.def("_check_embedding_options", &check_embedding_options);
  def(m, "convert_to_float8(model, filter=None)",
      "Lets each Linear of the model, or those for which filter(layer, path) is true, compute by "
      "float8_linear; their parameters stay as they are. Gives their number",
      [](Module& model, const py::object& filter) {
        if (filter.is_none()) return convert_to_float8(model);
        const py::function chosen(filter);
        return convert_to_float8(model, [&](const Linear& layer, const std::string& path) {
          return chosen(py::cast(&layer, py::return_value_policy::reference), path).cast<bool>();
        });
      });
  const auto device = "device"_a = py::none(), dtype = "dtype"_a = py::none();
  bind_module_class<RMSNorm>(
      m, "RMSNorm",
      "rms_norm along the last dims, of the sizes normalized_shape. Parameter: "
      "weight, ones")
      .def(init_of<RMSNorm, IntList, double>(), "normalized_shape"_a, "eps"_a = 1e-5, device, dtype)
      .def_property_readonly("normalized_shape", &RMSNorm::normalized)
      .def_property_readonly("eps", &RMSNorm::eps);
  bind_module_class<LayerNorm>(m, "LayerNorm",
                               "layer_norm along the last dims, of the sizes normalized_shape. "
                               "Parameters: weight, ones; bias, zeros; neither without "
                               "elementwise_affine")
      .def(init_of<LayerNorm, IntList, double, bool, bool>(), "normalized_shape"_a, "eps"_a = 1e-5,
           "elementwise_affine"_a = true, "bias"_a = true, device, dtype)
      .def_property_readonly("normalized_shape", &LayerNorm::normalized)
      .def_property_readonly("eps", &LayerNorm::eps);
  bind_module_class<Dropout>(m, "Dropout", "`dropout` while training, what it gets otherwise")
      .def(py::init<double>(), "p"_a = 0.5, "ValueError when p is not in [0, 1]")
      .def_property_readonly("p", &Dropout::probability);
  bind_sequential(m);
}

static void bind_choices(py::class_<TransformerConfig>& config) {
  using C = TransformerConfig;
  const auto one_of = [](const char* name, auto member, const std::vector<const char*>& names) {
    return choice("transformer_config", name, member, names);
  };
  const std::vector<const char*> activations = {"silu", "gelu", "gelu_tanh", "relu"};
  bind_attributes(
      config, one_of("norm", &C::norm, {"rms", "rms_plus_one", "layer"}),
      one_of("norm_place", &C::norm_place, {"before", "after", "both", "after_sum"}),
      one_of("query_norm", &C::query_norm, {"none", "head", "width"}),
      one_of("activation", &C::activation, activations),
      one_of("head_activation", &C::head_activation, activations),
      one_of("head", &C::head, {"linear", "transform", "none", "pooler"}),
      option("family", &C::family), option("norm_bias", &C::norm_bias),
      option("qkv_bias", &C::qkv_bias), option("output_bias", &C::output_bias),
      option("mlp_bias", &C::mlp_bias), option("head_bias", &C::head_bias),
      option("transform_bias", &C::transform_bias), option("gated", &C::gated),
      option("parallel_residual", &C::parallel_residual),
      option("rotary_fraction", &C::rotary_fraction),
      option("local_rope_theta", &C::local_rope_theta), option("unrotated", &C::unrotated),
      option("learned_positions", &C::learned_positions), option("causal", &C::causal),
      option("window", &C::window), option("windowed", &C::windowed), option("sinks", &C::sinks),
      option("attention_softcap", &C::attention_softcap),
      option("logit_softcap", &C::logit_softcap), option("attention_scale", &C::attention_scale),
      option("embedding_scale", &C::embedding_scale), option("residual_scale", &C::residual_scale),
      option("logit_divisor", &C::logit_divisor), option("token_types", &C::token_types),
      option("padding", &C::padding), option("embedding_norm", &C::embedding_norm),
      option("first_norm", &C::first_norm), option("final_norm", &C::final_norm),
      option("embedding_dropout", &C::embedding_dropout),
      option("residual_dropout", &C::residual_dropout),
      option("attention_dropout", &C::attention_dropout), option("experts", &C::experts),
      option("experts_per_token", &C::experts_per_token), option("dense", &C::dense),
      option("expert_ffn", &C::expert_ffn), option("shared_ffn", &C::shared_ffn),
      option("shared_gate", &C::shared_gate), option("sigmoid_router", &C::sigmoid_router),
      option("f32_router", &C::f32_router), option("normalized_weights", &C::normalized_weights),
      option("routed_scale", &C::routed_scale), option("expert_groups", &C::expert_groups),
      option("top_groups", &C::top_groups), option("balance_loss", &C::balance_loss),
      option("balance_coefficient", &C::balance_coefficient),
      option("expert_chunks", &C::expert_chunks), option("kv_lora_rank", &C::kv_lora_rank),
      option("q_lora_rank", &C::q_lora_rank), option("nope_head_dim", &C::nope_head_dim),
      option("value_head_dim", &C::value_head_dim), option("rope_interleave", &C::rope_interleave));
}

static void bind_config(py::module_& m) {
  using C = TransformerConfig;
  py::class_<C> config(
      m, "TransformerConfig",
      "Sizes and choices of a TransformerModel; the defaults are those of a Llama");
  const auto bind_sizes = [&](const auto&... fields) {
    const auto make = [](C all) {
      if (all.head_dim <= 0 && all.heads != 0) all.head_dim = all.dim / all.heads;
      return all;
    };
    bind_constructor<C>(config, make, py::kw_only(), fields..., "head_dim 0 means dim / heads");
    bind_attributes(config, fields...);
  };
  bind_sizes(needed("dim", &C::dim), needed("layers", &C::layers), needed("heads", &C::heads),
             needed("kv_heads", &C::kv_heads), needed("ffn", &C::ffn),
             needed("vocabulary", &C::vocabulary), option("head_dim", &C::head_dim),
             option("max_sequence", &C::max_sequence), option("rope_theta", &C::rope_theta),
             option("norm_eps", &C::norm_eps), option("tied", &C::tied),
             option("std", &C::deviation));
  config.def("__eq__", [](const C& a, const C& b) { return a == b; });
  bind_choices(config);
  def(m, "config_json(config, dtype='')", &config_json,
      "The text of the config.json from which transformer_config reads the same");
  def(m, "transformer_families()", &transformer_families,
      "The values of \"model_type\" in config.json that are known");
}

template <class L> static std::unique_ptr<L> transformer_of(const std::string& source) {
  return std::make_unique<L>(transformer_config(source));
}

void bind_transformer(py::module_& m) {
  bind_config(m);
  def(m, "transformer_block(config, layer=0)", &transformer_block,
      "One block, for models with other inputs and outputs than TransformerModel: hidden states "
      "[batch, sequence, dim], and the mask of an encoder or the segments of packed rows, to "
      "hidden states");
  def(m, "transformer_config(source)", &transformer_config,
      "`source` is 'tiny', 'small', a Hugging Face config.json or a directory that holds one. "
      "ValueError names the file, the key and what is wrong");
  auto transformer_model_class = bind_module_class<TransformerModel>(
      m, "TransformerModel",
      "A transformer as its config states, of any family; parameters are named as in Hugging "
      "Face's Llama. {ids [batch, sequence]} -> logits [batch, sequence, vocabulary]; a decoder "
      "also takes segments, integers (alike) that number the documents of packed rows; an encoder "
      "also takes a mask and token types, and without a head gives hidden states [batch, sequence, "
      "dim] and, with a pooler, the pooled first token [batch, dim]");
  transformer_model_class.def(py::init<const TransformerConfig&>(), "config"_a)
      .def(py::init(&transformer_of<TransformerModel>, &transformer_of<InPython<TransformerModel>>),
           "source"_a)
      .def_property_readonly("config", &TransformerModel::config);
  def(transformer_model_class, "blocks()", "The decoder layers, first to last",
      [](const ModuleObject& self) {
        const auto tree = tree_of<TransformerModel>(self);
        std::vector<std::shared_ptr<Module>> all;
        for (Module* block : tree->blocks()) all.push_back(part_of(tree, block));
        return all;
      });
  def(transformer_model_class, "units()",
      "The lists of modules to pass to fully_shard, before the whole model: each block, the token "
      "embedding, and the final norm with the head; of a tied model the blocks only",
      [](const ModuleObject& self) {
        const auto tree = tree_of<TransformerModel>(self);
        std::vector<std::vector<std::shared_ptr<Module>>> all;
        for (const auto& unit : tree->units()) {
          all.emplace_back();
          for (Module* part : unit) all.back().push_back(part_of(tree, part));
        }
        return all;
      });
  using L = TransformerLossOptions;
  constexpr auto kLoss = &TransformerModel::loss;
  const auto in_order = [](L& all, const std::optional<TokenOrder>& order) {
    if (order) all.order = *order;
  };
  bind_with_fields<L, TransformerModel*, Tensor, Tensor>(
      transformer_model_class, "loss", std::mem_fn(kLoss), Released(), "ids"_a, "targets"_a,
      option("segments", &L::segments), py::kw_only(),
      choice("model", "reduction", &L::reduction, {"mean", "sum", "none"}),
      option("divisor", &L::divisor), option("positions", &L::positions),
      field<std::optional<TokenOrder>>("order"_a = py::none(), in_order),
      "Mean cross entropy of the logits of ids [batch, sequence] against targets (alike); those "
      "that are -100 do not count. `segments`, integers (alike), number the documents that rows "
      "are packed with: tokens attend to their own document, whose positions start at 0. "
      "`reduction` is 'mean', 'sum' (with the balance loss times the number of targets) or 'none' "
      "(the tokens' losses); `divisor` divides the sum, 0 does not. `positions` and `order` are "
      "those of share_sequence, for tokens in any order");
  def(transformer_model_class, "set_sequence_way(way)",
      "How attention to tokens in another order than theirs moves keys: 'automatic', 'gather', "
      "'heads' or 'ring'",
      [](TransformerModel& self, const std::string& way) {
        self.set_sequence_way(sequence_way_named("set_sequence_way", way));
      });
}

static void bind_latent_attention(py::module_& m) {
  using C = LatentAttentionConfig;
  bind_options<C>(m, "LatentAttentionConfig",
                  "Sizes of multi-head latent attention, with the names of DeepSeek's config.json; "
                  "q_lora_rank 0: queries are computed from the input; scale 0: 1 / sqrt(d)",
                  py::kw_only(), needed("dim", &C::dim), needed("heads", &C::heads),
                  option("q_lora_rank", &C::q_lora_rank), needed("kv_lora_rank", &C::kv_lora_rank),
                  needed("qk_nope_head_dim", &C::qk_nope_head_dim),
                  needed("qk_rope_head_dim", &C::qk_rope_head_dim),
                  needed("v_head_dim", &C::v_head_dim), option("rope_theta", &C::rope_theta),
                  option("rope_interleave", &C::rope_interleave), option("norm_eps", &C::norm_eps),
                  option("scale", &C::scale), option("std", &C::deviation),
                  option("bias", &C::bias), option("dropout", &C::dropout));
  bind_module_class<LatentAttention>(
      m, "LatentAttention",
      "Causal multi-head latent attention of DeepSeek-V2 and V3: [batch, sequence, dim] -> the "
      "same. Children have Hugging Face's names")
      .def(py::init<const C&>(), "config"_a)
      .def_property_readonly("config", &LatentAttention::config, py::return_value_policy::copy);
}

void bind_moe(py::module_& m) {
  bind_latent_attention(m);
  using C = MoEConfig;
  bind_options<C>(
      m, "MoEConfig",
      "Sizes and numbers of a mixture of experts, as of Mixtral, Qwen-MoE and DeepSeek. "
      "`shared_width`: width of the expert that computes all tokens; `f32_logits`: the router "
      "computes in f32 where tokens have a smaller dtype; the coefficients multiply the losses "
      "that backward adds; `chunks`: parts of the sequences computed one after the other",
      py::kw_only(), needed("dim", &C::dim), needed("width", &C::width),
      needed("experts", &C::experts),
      converted("router"_a = py::none(), &C::router, or_default<RouterOptions>),
      option("f32_logits", &C::f32_logits), option("balance_bias", &C::balance_bias),
      option("shared_width", &C::shared_width), option("shared_gate", &C::shared_gate),
      option("shared_name", &C::shared_name),
      option("balance_coefficient", &C::balance_coefficient),
      option("z_coefficient", &C::z_coefficient), option("capacity_factor", &C::capacity_factor),
      option("std", &C::deviation), option("chunks", &C::chunks))
      .def_readonly("router", &C::router);
  bind_module_class<Router>(m, "Router",
                            "x [tokens, dim] -> weights, experts [tokens, k], scores and logits "
                            "[tokens, experts]. Parameter: weight [experts, dim]");
  bind_module_class<Experts>(m, "Experts",
                             "x [tokens, dim], weights and experts [tokens, k] -> [tokens, dim] "
                             "and counts [groups, experts]. Parameters: gate_proj, up_proj "
                             "[experts, width, dim] and down_proj [experts, dim, width]");
  auto moe_class = bind_module_class<MoE>(m, "MoE",
                                          "[..., dim] -> [..., dim]: experts chosen by token. "
                                          "Children: gate, experts, and the shared expert");
  moe_class.def(py::init<const MoEConfig&>(), "config"_a)
      .def_property_readonly("config", &MoE::config, py::return_value_policy::copy);
  getter(moe_class, "load",
         "[experts]: rows that each expert computed since update_balance, on all ranks",
         [](const MoE& self) { return MaybeTensor(self.load()); });
  moe_class.def_property_readonly("dropped", &MoE::dropped, "Choices dropped in the same calls");
  getter(moe_class, "balance_loss", "That of the last call, without its coefficient",
         [](const MoE& self) { return MaybeTensor(self.balance_loss()); });
  getter(moe_class, "z_loss", "That of the last call, without its coefficient",
         [](const MoE& self) { return MaybeTensor(self.z_loss()); });
  moe_class.def(
      "update_balance", &MoE::update_balance, Released(), "rate"_a = 1e-3,
      "Moves the bias towards an even load, and forgets the load; after the optimizer's step");
}

}  // namespace weft::python
