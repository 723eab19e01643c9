// SPDX-License-Identifier: Apache-2.0
#include "weft/moe.h"

#include <pybind11/stl.h>

#include "python/bindings/modules.h"
#include "weft/latent_attention.h"

namespace weft::python {

static void bind_moe_config(py::module_& m) {
  py::class_<MoEConfig>(
      m, "MoEConfig",
      "Sizes and numbers of a mixture of experts, as of Mixtral, Qwen-MoE and "
      "DeepSeek. `shared_width`: width of the expert that computes all tokens; "
      "`f32_logits`: the router computes in f32 where tokens have a smaller dtype; "
      "the coefficients multiply the losses that backward adds; `chunks`: parts of the "
      "sequences computed one after the other")
      .def(py::init([](int64_t dim, int64_t width, int64_t experts,
                       const std::optional<RouterOptions>& router, bool f32_logits,
                       bool balance_bias, int64_t shared_width, bool shared_gate,
                       const std::string& shared_name, double balance_coefficient,
                       double z_coefficient, std::optional<double> capacity_factor,
                       std::optional<double> std, int64_t chunks) {
             return MoEConfig{.dim = dim,
                              .width = width,
                              .experts = experts,
                              .router = router.value_or(RouterOptions()),
                              .f32_logits = f32_logits,
                              .balance_bias = balance_bias,
                              .shared_width = shared_width,
                              .shared_gate = shared_gate,
                              .shared_name = shared_name,
                              .balance_coefficient = balance_coefficient,
                              .z_coefficient = z_coefficient,
                              .capacity_factor = capacity_factor,
                              .deviation = std,
                              .chunks = chunks};
           }),
           py::kw_only(), py::arg("dim"), py::arg("width"), py::arg("experts"),
           py::arg("router") = py::none(), py::arg("f32_logits") = false,
           py::arg("balance_bias") = false, py::arg("shared_width") = 0,
           py::arg("shared_gate") = false, py::arg("shared_name") = "shared_experts",
           py::arg("balance_coefficient") = 0.0, py::arg("z_coefficient") = 0.0,
           py::arg("capacity_factor") = py::none(), py::arg("std") = py::none(),
           py::arg("chunks") = 1)
      .def_readonly("dim", &MoEConfig::dim)
      .def_readonly("width", &MoEConfig::width)
      .def_readonly("experts", &MoEConfig::experts)
      .def_readonly("router", &MoEConfig::router);
}

static void bind_latent_attention(py::module_& m) {
  using C = LatentAttentionConfig;
  py::class_<C>(m, "LatentAttentionConfig",
                "Sizes of multi-head latent attention, with the names of DeepSeek's config.json; "
                "q_lora_rank 0: queries are computed from the input; scale 0: 1 / sqrt(d)")
      .def(py::init([](int64_t dim, int64_t heads, int64_t q_lora_rank, int64_t kv_lora_rank,
                       int64_t qk_nope_head_dim, int64_t qk_rope_head_dim, int64_t v_head_dim,
                       double rope_theta, bool rope_interleave, double norm_eps, double scale,
                       std::optional<double> std, bool bias, double dropout) {
             return C{.dim = dim,
                      .heads = heads,
                      .q_lora_rank = q_lora_rank,
                      .kv_lora_rank = kv_lora_rank,
                      .qk_nope_head_dim = qk_nope_head_dim,
                      .qk_rope_head_dim = qk_rope_head_dim,
                      .v_head_dim = v_head_dim,
                      .rope_theta = rope_theta,
                      .rope_interleave = rope_interleave,
                      .bias = bias,
                      .dropout = dropout,
                      .norm_eps = norm_eps,
                      .scale = scale,
                      .deviation = std};
           }),
           py::kw_only(), py::arg("dim"), py::arg("heads"), py::arg("q_lora_rank") = 0,
           py::arg("kv_lora_rank"), py::arg("qk_nope_head_dim"), py::arg("qk_rope_head_dim"),
           py::arg("v_head_dim"), py::arg("rope_theta") = 10000.0,
           py::arg("rope_interleave") = true, py::arg("norm_eps") = 1e-6, py::arg("scale") = 0.0,
           py::arg("std") = py::none(), py::arg("bias") = false, py::arg("dropout") = 0.0);
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
