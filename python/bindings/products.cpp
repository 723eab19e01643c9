// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/products.h"

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "weft/error.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/float8.h"
#include "weft/ops/shapes.h"

namespace weft::python {

/// A vector [k] is used as a row on the left and as a column on the right; the dim of size 1 is
/// removed from the result.
Tensor product_of(const Tensor& a, const Tensor& b) {
  if (a.ndim() > 1 && b.ndim() > 1) [[likely]]
    return matmul(a, b);
  if (a.ndim() == 0 || b.ndim() == 0) {
    fail("matmul: operands are ", a.shape(), " and ", b.shape(),
         ", expected at least 1 dim each; multiply() scales");
  }
  const Tensor product =
      matmul(a.ndim() == 1 ? unsqueeze(a, 0) : a, b.ndim() == 1 ? unsqueeze(b, 1) : b);
  const Tensor columns = b.ndim() == 1 ? squeeze(product, -1) : product;
  return a.ndim() == 1 ? squeeze(columns, b.ndim() == 1 ? -1 : -2) : columns;
}

/// `axes`: a number of dims, or two dims or sequences of dims.
static Tensor tensordot_over(const Tensor& a, const Tensor& b, const py::object& axes) {
  if (PyIndex_Check(axes.ptr())) {
    const int count = dim_number("tensordot", axes);
    return released([&] { return tensordot(a, b, count); });
  }
  if (!py::isinstance<py::sequence>(axes) || py::len(axes) != 2) {
    throw py::type_error(concat("tensordot: axes is a ", Py_TYPE(axes.ptr())->tp_name,
                                ", expected an int or a pair of dims"));
  }
  const std::vector<int> first = named_dims(axes[py::int_(0)]);
  const std::vector<int> second = named_dims(axes[py::int_(1)]);
  return released([&] { return tensordot(a, b, first, second); });
}

static void bind_sums_of_products(py::module_& m) {
  m.def("tensordot", &tensordot_over, py::arg("x1"), py::arg("x2"), py::arg("axes") = 2,
        "Sums products of x1 and x2 over the last `axes` dims of x1 and the first of x2, or over "
        "pairs of dims (dims of x1, dims of x2). The result has the other dims of x1, then those "
        "of x2. ValueError names sizes that differ");
  m.def("vecdot", &vecdot, Released(), py::arg("x1"), py::arg("x2"), py::kw_only(),
        py::arg("axis") = -1,
        "Sums products along `axis`, counted from the end; the other dims broadcast. ValueError "
        "when the sizes of that dim differ");
  m.def(
      "trace",
      [](const Tensor& x, int64_t offset, const std::optional<DType>& dtype) {
        return dtype ? cast(trace(cast(x, *dtype), offset), *dtype) : trace(x, offset);
      },
      Released(), py::arg("x"), py::kw_only(), py::arg("offset") = 0, py::arg("dtype") = py::none(),
      "The sum of elements (i, i + offset) of the last two dims; integers in int64 unless `dtype` "
      "is given. ValueError when x has fewer than two dims");
  m.def("outer", &outer, Released(), py::arg("x1"), py::arg("x2"),
        "x1 [m] times x2 [n]: [m, n]. ValueError when one has not one dim");
  m.def("cross", &cross, Released(), py::arg("x1"), py::arg("x2"), py::kw_only(),
        py::arg("axis") = -1,
        "The cross product of vectors of 3 along `axis`, counted from the end; the other dims "
        "broadcast. ValueError when that dim of one is not 3");
}

void bind_products(py::module_& m) {
  bind_sums_of_products(m);
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
  m.def("float8_linear", &float8_linear, Released(), py::arg("x"), py::arg("weight"),
        "x [..., k] times the transpose of weight [n, k], each divided by its greatest magnitude / "
        "448 and rounded to float8_e4m3fn; gradients are rounded to float8_e5m2. Sums are float32. "
        "The greatest magnitudes are those of the whole tensors, however these are sharded");
}

}  // namespace weft::python
