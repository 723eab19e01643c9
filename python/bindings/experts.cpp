// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/experts.h"

#include <pybind11/stl.h>

#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "python/bindings/lock.h"
#include "weft/error.h"

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
      converted(py::arg("scores") = "softmax", &Options::scores, scores_named),
      option("normalize", &Options::normalize), option("scale", &Options::scale),
      option("groups", &Options::groups), option("top_groups", &Options::top_groups),
      converted(py::arg("group_score") = "best", &Options::group_score, group_score_named))
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
  const auto x = py::arg("x"), rows = py::arg("rows"), weights = py::arg("weights");
  m.def("grouped_matmul", &grouped_matmul, Released(), x, weights, py::arg("counts"),
        "Multiplies rows x [rows, k], sorted by expert, by their expert's matrix of weights "
        "[experts, k, n]: [rows, n]. counts [groups, experts] states the rows of each");
  m.def("grouped_linear", &grouped_linear, Released(), x, weights, py::arg("counts"),
        "grouped_matmul with the transposes of weights [experts, n, k]");
  m.def("rows_by_expert", &rows_by_expert, Released(), py::arg("experts"), weights,
        py::arg("capacity_factor") = py::none(), py::arg("imbalance") = 1.0,
        "Sorts the choices of tokens, experts [tokens, k], for stacked weights [experts, ...]: "
        "each rank gets the rows of its own experts. With a capacity_factor, an expert computes "
        "at most ceil(factor * choices of the group / experts) rows of a group. On device meta "
        "choices are spread evenly, but the first ranks have `imbalance` times the mean");
  m.def("dispatch_rows", &dispatch_rows, Released(), x, rows,
        "The rows of x [tokens, d] that the ranks compute: [rows, d]");
  m.def("combine_rows", &combine_rows, Released(), py::arg("computed"), rows, weights,
        "Sums the rows of each token, times weights [tokens, k] of its choices: [tokens, d]");
  m.def(
      "route_tokens",
      [](const Tensor& logits, const std::optional<RouterOptions>& options,
         const std::optional<Tensor>& bias) {
        return route_tokens(logits, options.value_or(RouterOptions()), bias.value_or(Tensor()));
      },
      Released(), py::arg("logits"), py::arg("options") = py::none(), py::arg("bias") = py::none(),
      "Chooses experts by logits [tokens, experts], in float32; `bias` is added to the scores "
      "for the choice only");
  m.def("balance_loss", &balance_loss, Released(), py::arg("routing"),
        "experts * sum over experts of (choices / tokens) * (mean score), of Switch Transformers");
  m.def("router_z_loss", &router_z_loss, Released(), py::arg("logits"),
        "The mean over tokens of logsumexp(logits)^2");
  m.def("balanced_bias", &balanced_bias, Released(), py::arg("bias"), py::arg("counts"),
        py::arg("rate"),
        "bias plus `rate` for experts with fewer rows than the mean of counts [.., experts], minus "
        "`rate` for those with more");
  m.def("with_loss", &with_loss, Released(), x, py::arg("loss"), py::arg("scale") = 1.0,
        "x, whose backward also sends the gradient `scale` to `loss`");
}

}  // namespace weft::python
