// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/products.h"

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "python/bindings/products.h"
#include "python/bindings/rule_text.h"
#include "weft/error.h"
#include "weft/ops/shapes.h"

namespace weft::python {

/// A vector [k] is used as a row on the left and as a column on the right; the dim of size 1 is
/// removed from the result.
Tensor product_of(const Tensor& a, const Tensor& b) {
  if (a.ndim() > 1 && b.ndim() > 1) [[likely]]
    return matmul(a, b);
  if (a.ndim() == 0 || b.ndim() == 0) {
    fail("matmul: ", a.shape(), " times ", b.shape(), ": one has no dims; multiply() scales");
  }
  const Tensor product =
      matmul(a.ndim() == 1 ? unsqueeze(a, 0) : a, b.ndim() == 1 ? unsqueeze(b, 1) : b);
  const Tensor columns = b.ndim() == 1 ? squeeze(product, -1) : product;
  return a.ndim() == 1 ? squeeze(columns, b.ndim() == 1 ? -1 : -2) : columns;
}

void bind_products(py::module_& m) {
  m.def("matmul", &product_of, Released(), py::arg("x1"), py::arg("x2"),
        with_rule(
            "matmul",
            "x1 [..., m, k] times x2 [..., k, n]: [..., m, n]; leading dims broadcast, "
            "transposed views are free. A vector [k] is a row, or a column, whose dim of size 1 is "
            "left out again. ValueError names the sizes that do not fit"));
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
