// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/products.h"

#include "python/bindings/bindings.h"

namespace weft::python {

void bind_products(py::module_& m) {
  m.def("matmul", &matmul, Released(), py::arg("x1"), py::arg("x2"),
        with_rule("matmul",
                  "x1 [..., m, k] times x2 [..., k, n]: [..., m, n]; leading dims broadcast, "
                  "transposed views are free. ValueError names the sizes that do not fit"));
  m.def(
      "linear",
      [](const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
        return bias ? linear(x, weight, *bias) : linear(x, weight);
      },
      Released(), py::arg("x"), py::arg("weight"), py::arg("bias") = py::none(),
      with_rule("linear",
                "x [..., k] times the transpose of weight [n, k] (+ bias [n]): [..., n]"));
}

}  // namespace weft::python
