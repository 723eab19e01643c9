// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/pointwise.h"

#include "python/bindings/bindings.h"
#include "python/bindings/composed.h"
#include "weft/ops/algebra.h"

namespace weft::python {

static void bind_numbers(py::module_& m) {
  const auto x = py::arg("x"), tensor1 = py::arg("tensor1"), tensor2 = py::arg("tensor2");
  const auto value = py::arg("value") = Number(1), alpha = py::arg("alpha") = Number(1);
  bind_function(m, "addcmul", &addcmul, "x + value * tensor1 * tensor2", x, tensor1, tensor2,
                py::kw_only(), value);
  bind_function(m, "addcdiv", &addcdiv, "x + value * tensor1 / tensor2", x, tensor1, tensor2,
                py::kw_only(), value);
  bind_function(m, "rsub", &rsub, "other - alpha * x", x, py::arg("other"), py::kw_only(), alpha);
  m.def("lerp", &lerp, Released(), py::arg("x"), py::arg("end"), py::arg("weight"),
        "x + weight * (end - x)");
  m.def("logit", &logit, Released(), py::arg("x"), py::arg("eps") = py::none(),
        "log(x / (1 - x)); with `eps`, of x limited to [eps, 1 - eps]");
  m.def("nan_to_num", &nan_to_num, Released(), py::arg("x"), py::arg("nan") = 0.0,
        py::arg("posinf") = py::none(), py::arg("neginf") = py::none(),
        "x with NaN, inf and -inf replaced; None means the largest and smallest number");
  m.def("isclose", &isclose, Released(), py::arg("x1"), py::arg("x2"), py::arg("rtol") = 1e-5,
        py::arg("atol") = 1e-8, py::arg("equal_nan") = false,
        "|x1 - x2| <= atol + rtol * |x2|, or equal: bool");
  m.def("allclose", &allclose, Released(), py::arg("x1"), py::arg("x2"), py::arg("rtol") = 1e-5,
        py::arg("atol") = 1e-8, py::arg("equal_nan") = false,
        "Whether all elements are close; one number, equal on all ranks");
}

static void bind_algebra(py::module_& m) {
  const auto added = [&m](const char* name, auto function, const char* a, const char* b,
                          const char* text) {
    bind_function(m, name, function, text, py::arg("x"), py::arg(a), py::arg(b), py::kw_only(),
                  py::arg("beta") = Number(1), py::arg("alpha") = Number(1));
  };
  added("addmm", &addmm, "mat1", "mat2", "beta * x + alpha * (mat1 @ mat2)");
  added("addmv", &addmv, "mat", "vec", "beta * x + alpha * (mat @ vec)");
  added("addr", &addr, "vec1", "vec2", "beta * x + alpha * outer(vec1, vec2)");
  added("baddbmm", &baddbmm, "batch1", "batch2", "beta * x + alpha * (batch1 @ batch2)");
  added("addbmm", &addbmm, "batch1", "batch2",
        "beta * x + alpha * the sum of batch1 @ batch2 over the batch");
  m.def(
      "einsum",
      [](const std::string& equation, const py::args& given) {
        const bool is_list = given.size() == 1 && !tensor_of(given[0]);
        const Tensors operands =
            tensors_in("einsum", is_list ? py::args(py::tuple(given[0])) : given);
        return released([&] { return einsum(equation, operands); });
      },
      py::arg("equation"),
      "Sums of products over the labels that the result lacks: einsum(\"bij,bjk->bik\", x, y)");
  m.def("mv", &mv, Released(), py::arg("x"), py::arg("vec"), "A matrix times a vector");
  m.def("dot", &dot, Released(), py::arg("x"), py::arg("tensor"),
        "The sum of products of two vectors");
  m.def(
      "cdist",
      [](const Tensor& a, const Tensor& b, double p, const py::object&) {
        return released([&] { return cdist(a, b, p); });
      },
      py::arg("x1"), py::arg("x2"), py::arg("p") = 2.0, py::arg("compute_mode") = py::none(),
      "p-norms of the differences between rows: [..., n, m]");
  m.def("dist", &dist, Released(), py::arg("x"), py::arg("other"), py::arg("p") = 2.0,
        "The p-norm of x - other");
  m.def("cov", py::overload_cast<const Tensor&, double>(&cov), Released(), py::arg("x"),
        py::kw_only(), py::arg("correction") = 1.0,
        "Covariances of the rows of a matrix [variables, observations]");
  m.def("corrcoef", &corrcoef, Released(), py::arg("x"), "Correlations of the rows of a matrix");
  m.def("vander", &vander, Released(), py::arg("x"), py::arg("N") = -1,
        py::arg("increasing") = false, "Powers of a vector as columns");
}

/// trapezoid(y, x=None, *, dx, dim) of one kind.
template <class Points, class Steps>
static void bind_integral(py::module_& m, const char* name, Points by_points, Steps by_steps,
                          const char* text) {
  m.def(
      name,
      [by_points, by_steps](const Tensor& y, const std::optional<Tensor>& x, double dx, int dim) {
        return x ? by_points(y, *x, dim) : by_steps(y, dx, dim);
      },
      Released(), py::arg("y"), py::arg("x") = py::none(), py::kw_only(), py::arg("dx") = 1.0,
      py::arg("dim") = -1, text);
}

void bind_pointwise(py::module_& m) {
  bind_numbers(m);
  bind_algebra(m);
  bind_integral(m, "trapezoid", py::overload_cast<const Tensor&, const Tensor&, int>(&trapezoid),
                py::overload_cast<const Tensor&, double, int>(&trapezoid),
                "The integral along `dim` by the trapezoidal rule, of values at x or dx apart");
  bind_integral(m, "cumulative_trapezoid",
                py::overload_cast<const Tensor&, const Tensor&, int>(&cumulative_trapezoid),
                py::overload_cast<const Tensor&, double, int>(&cumulative_trapezoid),
                "Integrals along `dim` up to each point but the first");
}

}  // namespace weft::python
