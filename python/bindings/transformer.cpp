// SPDX-License-Identifier: Apache-2.0
#include "weft/transformer.h"

#include "python/bindings/lock.h"
#include "python/bindings/modules.h"

namespace weft::python {

static void bind_config(py::module_& m) {
  py::class_<TransformerConfig>(m, "TransformerConfig", "Sizes and numbers of a Llama")
      .def(py::init([](int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads, int64_t ffn,
                       int64_t vocabulary, int64_t head_dim, int64_t max_sequence,
                       double rope_theta, double norm_eps, bool tied, double std) {
             return TransformerConfig{
                 .dim = dim,
                 .layers = layers,
                 .heads = heads,
                 .kv_heads = kv_heads,
                 .head_dim = head_dim > 0 || heads == 0 ? head_dim : dim / heads,
                 .ffn = ffn,
                 .vocabulary = vocabulary,
                 .max_sequence = max_sequence,
                 .rope_theta = rope_theta,
                 .norm_eps = norm_eps,
                 .tied = tied,
                 .deviation = std};
           }),
           py::kw_only(), py::arg("dim"), py::arg("layers"), py::arg("heads"), py::arg("kv_heads"),
           py::arg("ffn"), py::arg("vocabulary"), py::arg("head_dim") = 0,
           py::arg("max_sequence") = 2048, py::arg("rope_theta") = 10000.0,
           py::arg("norm_eps") = 1e-5, py::arg("tied") = false, py::arg("std") = 0.02,
           "head_dim 0 means dim / heads")
      .def_readwrite("dim", &TransformerConfig::dim)
      .def_readwrite("layers", &TransformerConfig::layers)
      .def_readwrite("heads", &TransformerConfig::heads)
      .def_readwrite("kv_heads", &TransformerConfig::kv_heads)
      .def_readwrite("head_dim", &TransformerConfig::head_dim)
      .def_readwrite("ffn", &TransformerConfig::ffn)
      .def_readwrite("vocabulary", &TransformerConfig::vocabulary)
      .def_readwrite("max_sequence", &TransformerConfig::max_sequence)
      .def_readwrite("rope_theta", &TransformerConfig::rope_theta)
      .def_readwrite("norm_eps", &TransformerConfig::norm_eps)
      .def_readwrite("tied", &TransformerConfig::tied)
      .def_readwrite("std", &TransformerConfig::deviation)
      .def("__eq__", [](const TransformerConfig& a, const TransformerConfig& b) { return a == b; });
}

template <class L>
static std::unique_ptr<L> transformer_of(const std::string& source) {
  return std::make_unique<L>(transformer_config(source));
}

void bind_transformer(py::module_& m) {
  bind_config(m);
  m.def("transformer_config", &transformer_config, py::arg("source"),
        "`source` is 'tiny', 'small', a Hugging Face config.json or a directory that holds one. "
        "ValueError names the file, the key and what is wrong");
  bind_module_class<TransformerModel>(
      m, "TransformerModel",
      "The decoder of Touvron et al. (2023): grouped-query attention, rope, SwiGLU, "
      "RMSNorm; parameters have Hugging Face's names. {ids [batch, sequence]} -> "
      "logits [batch, sequence, vocabulary]")
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
      .def("loss", &TransformerModel::loss, Released(), py::arg("ids"), py::arg("targets"),
           "Mean cross entropy of the logits of ids [batch, sequence] against targets (alike); "
           "those that are -100 do not count");
}

}  // namespace weft::python
