// SPDX-License-Identifier: Apache-2.0
#include "weft/moe.h"

#include <pybind11/stl.h>

#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "python/bindings/lock.h"
#include "python/bindings/modules.h"
#include "weft/error.h"
#include "weft/latent_attention.h"
#include "weft/ops/experts.h"

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
  py::class_<ExpertRows>(m, "ExpertRows",
                         "Which rows the ranks compute for their experts: one for each choice of "
                         "each token that is not dropped, sorted by group of ranks, expert and "
                         "token")
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
  m.def("grouped_matmul", &grouped_matmul, Released(), "x"_a, "weights"_a, "counts"_a,
        "Multiplies rows x [rows, k], sorted by expert, by their expert's matrix of weights "
        "[experts, k, n]: [rows, n]. counts [groups, experts] states the rows of each");
  m.def("grouped_linear", &grouped_linear, Released(), "x"_a, "weights"_a, "counts"_a,
        "grouped_matmul with the transposes of weights [experts, n, k]");
  m.def("rows_by_expert", &rows_by_expert, Released(), "experts"_a, "weights"_a,
        "capacity_factor"_a = py::none(), "imbalance"_a = 1.0,
        "Sorts the choices of tokens, experts [tokens, k], for stacked weights [experts, ...]: "
        "each rank gets the rows of its own experts. With a capacity_factor, an expert computes "
        "at most ceil(factor * choices of the group / experts) rows of a group. On device meta "
        "choices are spread evenly, but the first ranks have `imbalance` times the mean");
  m.def("dispatch_rows", &dispatch_rows, Released(), "x"_a, "rows"_a,
        "The rows of x [tokens, d] that the ranks compute: [rows, d]");
  m.def("combine_rows", &combine_rows, Released(), "computed"_a, "rows"_a, "weights"_a,
        "Sums the rows of each token, times weights [tokens, k] of its choices: [tokens, d]");
  m.def(
      "route_tokens",
      [](const Tensor& logits, const std::optional<RouterOptions>& options,
         const std::optional<Tensor>& bias) {
        return route_tokens(logits, options.value_or(RouterOptions()), bias.value_or(Tensor()));
      },
      Released(), "logits"_a, "options"_a = py::none(), "bias"_a = py::none(),
      "Chooses experts by logits [tokens, experts], in float32; `bias` is added to the scores "
      "for the choice only");
  m.def("balance_loss", &balance_loss, Released(), "routing"_a,
        "experts * sum over experts of (choices / tokens) * (mean score), of Switch Transformers");
  m.def("router_z_loss", &router_z_loss, Released(), "logits"_a,
        "The mean over tokens of logsumexp(logits)^2");
  m.def("balanced_bias", &balanced_bias, Released(), "bias"_a, "counts"_a, "rate"_a,
        "bias plus `rate` for experts with fewer rows than the mean of counts [.., experts], minus "
        "`rate` for those with more");
  m.def("with_loss", &with_loss, Released(), "x"_a, "loss"_a, "scale"_a = 1.0,
        "x, whose backward also sends the gradient `scale` to `loss`");
}

static RouterOptions router_of(const std::optional<RouterOptions>& given) {
  return given.value_or(RouterOptions());
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
      needed("experts", &C::experts), converted("router"_a = py::none(), &C::router, router_of),
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
  bind_module_class<MoE>(m, "MoE",
                         "[..., dim] -> [..., dim]: experts chosen by token. Children: gate, "
                         "experts, and the shared expert")
      .def(py::init<const MoEConfig&>(), "config"_a)
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
      .def("update_balance", &MoE::update_balance, Released(), "rate"_a = 1e-3,
           "Moves the bias towards an even load, and forgets the load; after the optimizer's step");
}

}  // namespace weft::python
