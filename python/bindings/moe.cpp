// SPDX-License-Identifier: Apache-2.0
#include "weft/moe.h"

#include <pybind11/stl.h>

#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "python/bindings/modules.h"
#include "weft/latent_attention.h"

namespace weft::python {

static RouterOptions::Scores scores_named(const std::string& name) {
  if (name == "softmax") return RouterOptions::Scores::softmax;
  if (name == "sigmoid") return RouterOptions::Scores::sigmoid;
  fail("router_options: scores is '", name, "', expected 'softmax' or 'sigmoid'");
}

static RouterOptions::GroupScore group_score_named(const std::string& name) {
  if (name == "best") return RouterOptions::GroupScore::best;
  if (name == "best_two") return RouterOptions::GroupScore::best_two;
  fail("router_options: group_score is '", name, "', expected 'best' or 'best_two'");
}

static void bind_results(py::module_& m) {
  py::class_<ExpertRows>(
      m, "ExpertRows",
      "Which rows the ranks compute for their experts: one for each choice of each token that is "
      "not dropped, sorted by group of ranks, expert and token")
      .def_readonly("tokens", &ExpertRows::tokens, "[rows] int64: the token of each row")
      .def_readonly("choices", &ExpertRows::choices, "[rows] int64: which of its choices")
      .def_readonly("counts", &ExpertRows::counts,
                    "[groups, experts] int64, equal on all ranks: the rows of each expert")
      .def_readonly("dropped", &ExpertRows::dropped, "The choices beyond the capacity");
  using Options = RouterOptions;
  bind_options<Options>(
      m, "RouterOptions",
      "How a router's logits become choices and weights. `scores`: 'softmax' or 'sigmoid'; "
      "`normalize`: weights sum to `scale`; choices come from the best `top_groups` of `groups` "
      "groups of experts, by `group_score`: 'best' expert, or the sum of the 'best_two'",
      py::kw_only(), option("top_k", &Options::top_k),
      converted("scores"_a = "softmax", &Options::scores, scores_named),
      option("normalize", &Options::normalize), option("scale", &Options::scale),
      option("groups", &Options::groups), option("top_groups", &Options::top_groups),
      converted("group_score"_a = "best", &Options::group_score, group_score_named))
      .def_readwrite("top_k", &Options::top_k)
      .def_readwrite("normalize", &Options::normalize)
      .def_readwrite("scale", &Options::scale)
      .def_readwrite("groups", &Options::groups)
      .def_readwrite("top_groups", &Options::top_groups)
      .def("__eq__", [](const Options& a, const Options& b) { return a == b; });
  py::class_<Routing>(m, "Routing", "The choices of a router")
      .def_readonly("weights", &Routing::weights, "[tokens, k]")
      .def_readonly("experts", &Routing::experts, "[tokens, k] int64")
      .def_readonly("scores", &Routing::scores, "[tokens, experts]");
}

void bind_experts(py::module_& m) {
  bind_results(m);
  def(m, "grouped_matmul(x, weights, counts)", &grouped_matmul,
      "Multiplies rows x [rows, k], sorted by expert, by their expert's matrix of weights "
      "[experts, k, n]: [rows, n]. counts [groups, experts] states the rows of each");
  def(m, "grouped_linear(x, weights, counts)", &grouped_linear,
      "grouped_matmul with the transposes of weights [experts, n, k]");
  def(m, "rows_by_expert(experts, weights, capacity_factor=None, imbalance=1.0)", &rows_by_expert,
      "Sorts the choices of tokens, experts [tokens, k], for stacked weights [experts, ...]: each "
      "rank gets the rows of its own experts. With a capacity_factor, an expert computes at most "
      "ceil(factor * choices of the group / experts) rows of a group. On device meta choices are "
      "spread evenly, but the first ranks have `imbalance` times the mean");
  def(m, "dispatch_rows(x, rows)", &dispatch_rows,
      "The rows of x [tokens, d] that the ranks compute: [rows, d]");
  def(m, "combine_rows(computed, rows, weights)", &combine_rows,
      "Sums the rows of each token, times weights [tokens, k] of its choices: [tokens, d]");
  def(m, "route_tokens(logits, options=None, bias=None)",
      "Chooses experts by logits [tokens, experts], in float32; `bias` is added to the scores for "
      "the choice only",
      [](const Tensor& logits, const std::optional<RouterOptions>& options,
         const MaybeTensor& bias) { return route_tokens(logits, or_default(options), bias); });
  def(m, "balance_loss(routing)", &balance_loss,
      "experts * sum over experts of (choices / tokens) * (mean score), of Switch Transformers");
  def(m, "router_z_loss(logits)", &router_z_loss, "The mean over tokens of logsumexp(logits)^2");
  def(m, "balanced_bias(bias, counts, rate)", &balanced_bias,
      "bias plus `rate` for experts with fewer rows than the mean of counts [.., experts], minus "
      "`rate` for those with more");
  def(m, "with_loss(x, loss, scale=1.0)", &with_loss,
      "x, whose backward also sends the gradient `scale` to `loss`");
}

static void bind_moe_config(py::module_& m) {
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
      .def(py::init<const C&>(), "config"_a)
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
  auto moe_class = bind_module_class<MoE>(m, "MoE",
                                          "[..., dim] -> [..., dim]: experts chosen by token. "
                                          "Children: gate, experts, and the shared expert");
  moe_class.def(py::init<const MoEConfig&>(), "config"_a)
      .def_property_readonly("config", &MoE::config);
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
