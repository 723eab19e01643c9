// SPDX-License-Identifier: Apache-2.0
#include "weft/layers.h"

#include <algorithm>
#include <variant>

#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "python/bindings/modules.h"
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

/// The dims that a norm is over, of which PyTorch takes one, as a number or as a list of one.
using LastDim = std::variant<int64_t, std::vector<int64_t>>;

static int64_t plain(const LastDim& shape) {
  if (const auto* size = std::get_if<int64_t>(&shape)) return *size;
  const auto& sizes = std::get<std::vector<int64_t>>(shape);
  if (sizes.size() != 1) {
    fail("normalized_shape: number of dims is ", sizes.size(), ", expected 1");
  }
  return sizes[0];
}
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

static void bind_affine(py::module_& m) {
  const auto device = "device"_a = py::none(), dtype = "dtype"_a = py::none();
  bind_module_class<Linear>(
      m, "Linear",
      "[..., in] -> [..., out]: x weight^T (+ bias). Parameters: weight [out, in] and bias [out], "
      "uniform in +-1 / sqrt(in); with `std`, the weight is normal and the bias 0")
      .def(init_of<Linear, int64_t, int64_t, bool, std::optional<double>>(), "in_features"_a,
           "out_features"_a, "bias"_a = true, "std"_a = py::none(), device, dtype)
      .def_property_readonly("in_features", [](const Linear& l) { return size_of_weight(l, 1); })
      .def_property_readonly("out_features", [](const Linear& l) { return size_of_weight(l, 0); })
      .def_property("float8", &Linear::is_float8, &Linear::set_float8,
                    "Whether products are computed by float8_linear");
  bind_module_class<Float8Linear, Linear>(
      m, "Float8Linear",
      "A Linear whose products, and those of its gradients, are computed in 8 bits with dynamic "
      "scales: float8_linear")
      .def(init_of<Float8Linear, int64_t, int64_t, bool, std::optional<double>>(), "in_features"_a,
           "out_features"_a, "bias"_a = true, "std"_a = py::none(), device, dtype);
  bind_module_class<Embedding>(
      m, "Embedding",
      "ids [...] -> [..., dim]. Parameter: weight [vocabulary, dim], normal with `std`")
      .def(init_of<Embedding, int64_t, int64_t, double>(), "num_embeddings"_a, "embedding_dim"_a,
           "std"_a = 1.0, device, dtype)
      .def_property_readonly("num_embeddings",
                             [](const Embedding& e) { return size_of_weight(e, 0); })
      .def_property_readonly("embedding_dim",
                             [](const Embedding& e) { return size_of_weight(e, 1); });
}

static int convert_layers(Module& model, const py::object& filter) {
  if (filter.is_none()) return convert_to_float8(model);
  const py::function chosen(filter);
  return convert_to_float8(model, [&](const Linear& layer, const std::string& path) {
    return chosen(py::cast(&layer, py::return_value_policy::reference), path).cast<bool>();
  });
}

void bind_layers(py::module_& m) {
  bind_affine(m);
  def(m, "convert_to_float8(model, filter=None)", &convert_layers,
      "Lets each Linear of the model, or those for which filter(layer, path) is true, compute by "
      "float8_linear; their parameters stay as they are. Gives their number");
  const auto device = "device"_a = py::none(), dtype = "dtype"_a = py::none();
  bind_module_class<RMSNorm>(m, "RMSNorm",
                             "[..., dim] -> [..., dim]: rms_norm. Parameter: weight, ones")
      .def(init_of<RMSNorm, LastDim, double>(), "normalized_shape"_a, "eps"_a = 1e-5, device, dtype)
      .def_property_readonly("normalized_shape",
                             [](const RMSNorm& n) { return py::make_tuple(size_of_weight(n, 0)); })
      .def_property_readonly("eps", &RMSNorm::eps);
  bind_module_class<LayerNorm>(m, "LayerNorm",
                               "[..., dim] -> [..., dim]: layer_norm. Parameters: weight, ones; "
                               "bias, zeros; neither without elementwise_affine")
      .def(init_of<LayerNorm, LastDim, double, bool, bool>(), "normalized_shape"_a, "eps"_a = 1e-5,
           "elementwise_affine"_a = true, "bias"_a = true, device, dtype)
      .def_property_readonly("normalized_shape",
                             [](const LayerNorm& n) { return py::make_tuple(n.dim()); })
      .def_property_readonly("eps", &LayerNorm::eps);
  bind_module_class<Dropout>(m, "Dropout", "`dropout` while training, what it gets otherwise")
      .def(py::init<double>(), "p"_a = 0.5, "ValueError when p is not in [0, 1)")
      .def_property_readonly("p", &Dropout::probability);
  bind_sequential(m);
}

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
          fail("transformer_config: ", what, " is ", in_quotes(value), ", expected one of ",
               listed(names));
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
  def(m, "config_json(config, dtype='')", &config_json,
      "The text of the config.json from which transformer_config reads the same");
  def(m, "transformer_families()", &transformer_families,
      "The values of \"model_type\" in config.json that are known");
}

static void bind_block(py::module_& m) {
  def(m, "transformer_block(config, layer=0)", &transformer_block,
      "One block, for models with other inputs and outputs than TransformerModel: hidden states "
      "[batch, sequence, dim], and the mask of an encoder, to hidden states");
}

template <class L> static std::unique_ptr<L> transformer_of(const std::string& source) {
  return std::make_unique<L>(transformer_config(source));
}

void bind_transformer(py::module_& m) {
  bind_config(m);
  bind_block(m);
  def(m, "transformer_config(source)", &transformer_config,
      "`source` is 'tiny', 'small', a Hugging Face config.json or a directory that holds one. "
      "ValueError names the file, the key and what is wrong");
  auto transformer_model_class = bind_module_class<TransformerModel>(
      m, "TransformerModel",
      "A transformer as its config states, of any family; parameters are named as in Hugging "
      "Face's Llama. {ids [batch, sequence]} -> logits [batch, sequence, vocabulary]; an encoder "
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
  transformer_model_class.def("loss", &TransformerModel::loss, Released(), "ids"_a, "targets"_a,
                              "Mean cross entropy of the logits of ids [batch, sequence] against "
                              "targets (alike); those that are -100 do not count");
}

}  // namespace weft::python
