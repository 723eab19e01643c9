// SPDX-License-Identifier: Apache-2.0
#include "weft/moe.h"

#include <pybind11/stl.h>

#include "python/bindings/fields.h"
#include "python/bindings/modules.h"
#include "weft/latent_attention.h"

namespace weft::python {

static RouterOptions router_of(const std::optional<RouterOptions>& given) {
  return given.value_or(RouterOptions());
}

static void bind_moe_config(py::module_& m) {
  using C = MoEConfig;
  bind_options<C>(m, "MoEConfig",
                  "Sizes and numbers of a mixture of experts, as of Mixtral, Qwen-MoE and "
                  "DeepSeek. `shared_width`: width of the expert that computes all tokens; "
                  "`f32_logits`: the router computes in f32 where tokens have a smaller dtype; the "
                  "coefficients multiply the losses that backward adds; `chunks`: parts of the "
                  "sequences computed one after the other",
                  py::kw_only(), needed("dim", &C::dim), needed("width", &C::width),
                  needed("experts", &C::experts),
                  converted(py::arg("router") = py::none(), &C::router, router_of),
                  option("f32_logits", &C::f32_logits), option("balance_bias", &C::balance_bias),
                  option("shared_width", &C::shared_width), option("shared_gate", &C::shared_gate),
                  option("shared_name", &C::shared_name),
                  option("balance_coefficient", &C::balance_coefficient),
                  option("z_coefficient", &C::z_coefficient),
                  option("capacity_factor", &C::capacity_factor), option("std", &C::deviation),
                  option("chunks", &C::chunks))
      .def_readonly("dim", &C::dim)
      .def_readonly("width", &C::width)
      .def_readonly("experts", &C::experts)
      .def_readonly("router", &C::router);
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
      .def(py::init<const C&>(), py::arg("config"))
      .def_property_readonly("config", &LatentAttention::config);
}

void bind_moe(py::module_& m) {
  bind_latent_attention(m);
  bind_moe_config(m);
  bind_module_class<Router>(m, "Router",
                            "x [tokens, dim] -> weights, experts [tokens, k], scores and logits "
                            "[tokens, experts]. Parameter: weight [experts, dim]");
  bind_module_class<Experts>(m, "Experts",
                             "x [tokens, dim], weights and experts [tokens, k] -> [tokens, dim] "
                             "and counts [groups, experts]. Parameters: gate_proj, up_proj "
                             "[experts, width, dim] and down_proj [experts, dim, width]");
  bind_module_class<MoE>(m, "MoE",
                         "[..., dim] -> [..., dim]: experts chosen by token. Children: gate, "
                         "experts, and the shared expert")
      .def(py::init<const MoEConfig&>(), py::arg("config"))
      .def_property_readonly("config", &MoE::config)
      .def_property_readonly(
          "load", [](const MoE& self) { return optional_of(self.load()); },
          "[experts]: rows that each expert computed since update_balance, on all ranks")
      .def_property_readonly("dropped", &MoE::dropped, "Choices dropped in the same calls")
      .def_property_readonly(
          "balance_loss", [](const MoE& self) { return optional_of(self.balance_loss()); },
          "That of the last call, without its coefficient")
      .def_property_readonly(
          "z_loss", [](const MoE& self) { return optional_of(self.z_loss()); },
          "That of the last call, without its coefficient")
      .def("update_balance", &MoE::update_balance, Released(), py::arg("rate") = 1e-3,
           "Moves the bias towards an even load, and forgets the load; after the optimizer's step");
}

}  // namespace weft::python
