// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "weft/moe.h"

// Functions that mixtures of experts are made of; layers.cpp binds the modules.

namespace weft::python {

void bind_experts(py::module_& m) {
  py::class_<ExpertRows>(
      m, "ExpertRows",
      "The rows that ranks compute for their experts: one for each choice of each token that is "
      "not dropped, sorted by group of ranks, expert and token")
      .def_readonly("tokens", &ExpertRows::tokens, "[rows] int64: the token of each row")
      .def_readonly("choices", &ExpertRows::choices, "[rows] int64: which of its choices")
      .def_readonly("counts", &ExpertRows::counts,
                    "[groups, experts] int64, equal on all ranks: the rows of each expert")
      .def_readonly("dropped", &ExpertRows::dropped, "The choices beyond the capacity");
  using Options = RouterOptions;
  bind_options<Options>(
      m, "RouterOptions",
      "The rule from a router's logits to choices and weights. `scores`: 'softmax' or 'sigmoid'; "
      "`normalize`: weights sum to `scale`; choices come from the best `top_groups` of `groups` "
      "groups of experts, by `group_score`: 'best' expert, or the sum of the 'best_two'",
      py::kw_only(), option("top_k", &Options::top_k),
      choice("router_options", "scores", &Options::scores, {"softmax", "sigmoid"}),
      option("normalize", &Options::normalize), option("scale", &Options::scale),
      option("groups", &Options::groups), option("top_groups", &Options::top_groups),
      choice("router_options", "group_score", &Options::group_score, {"best", "best_two"}))
      .def("__eq__", [](const Options& a, const Options& b) { return a == b; });
  py::class_<Routing>(m, "Routing", "The choices of a router")
      .def_readonly("weights", &Routing::weights, "[tokens, k]")
      .def_readonly("experts", &Routing::experts, "[tokens, k] int64")
      .def_readonly("scores", &Routing::scores, "[tokens, experts]");
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

}  // namespace weft::python
