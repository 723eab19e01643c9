// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/testing.h"

#include <pybind11/stl.h>

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "weft/error.h"

namespace weft::python {

/// Whether the op passed, and the report as text.
using Outcome = std::pair<bool, std::string>;

static Outcome gradcheck_outcome(const Op& op, uint64_t seed) {
  const GradcheckReport report = gradcheck(op, seed);
  return {report.ok(), concat(report)};
}

static Outcome sweep_outcome(const Op& op, const std::vector<std::pair<std::string, int>>& axes,
                             int64_t most, int percent, uint64_t seed) {
  SweepOptions options{.axes = {}, .most = most, .percent = percent, .seed = seed};
  for (const auto& [name, size] : axes) options.axes.push_back({name, size});
  const SweepReport report = axes.empty() ? sweep(op) : sweep(op, options);
  return {report.ok(), concat(report)};
}

void bind_testing(py::module_& m) {
  m.def("_gradcheck", &gradcheck_outcome, Released(), py::arg("op"), py::arg("seed"));
  m.def("_sweep", &sweep_outcome, Released(), py::arg("op"), py::arg("axes"), py::arg("most"),
        py::arg("percent"), py::arg("seed"));
}

}  // namespace weft::python
