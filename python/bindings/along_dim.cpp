// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/along_dim.h"

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "python/bindings/rule_text.h"

namespace weft::python {

void bind_along_dim(py::module_& m) {
  m.def("_cumulative_sum", &cumulative_sum, Released(), py::arg("x"), py::arg("axis"),
        with_rule("cumulative_sum", "Sums of the elements up to each; integers in int64"));
  m.def("_cumulative_prod", &cumulative_prod, Released(), py::arg("x"), py::arg("axis"),
        with_rule("cumulative_prod", "Products of the elements up to each; integers in int64"));
  m.def("_sort", &sort, Released(), py::arg("x"), py::arg("axis"), py::arg("descending"),
        with_rule("sort",
                  "The elements in order, equal ones in the order they have; NaN counts as "
                  "the greatest"));
  m.def("_argsort", &argsort, Released(), py::arg("x"), py::arg("axis"), py::arg("descending"),
        with_rule("argsort", "The indices (int64) of the elements in order"));
  m.def("_take", &take, Released(), py::arg("x"), py::arg("indices"), py::arg("axis"),
        with_rule("take",
                  "Slices `indices` [n] of `axis`; negative ones count from the end. "
                  "ValueError names one that is outside"));
  m.def("_take_along_dim", &take_along_dim, Released(), py::arg("x"), py::arg("indices"),
        py::arg("axis"),
        with_rule("take_along_dim",
                  "Element indices[.., i, ..] of `axis` for each element of "
                  "`indices`, which has as many dims as x"));
}

}  // namespace weft::python
