// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/composed.h"

#include "python/bindings/bindings.h"
#include "weft/ops/algebra.h"
#include "weft/ops/distributions.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/losses.h"
#include "weft/ops/placing.h"
#include "weft/ops/pointwise.h"
#include "weft/ops/special.h"
#include "weft/ops/statistics.h"
#include "weft/torch.h"

namespace weft::python {

static void bind_numbers(py::module_& m) {
  const auto value = "value"_a = Number(1), alpha = "alpha"_a = Number(1);
  bind_function(m, "addcmul", &addcmul, "x + value * tensor1 * tensor2", "x"_a, "tensor1"_a,
                "tensor2"_a, py::kw_only(), value);
  bind_function(m, "addcdiv", &addcdiv, "x + value * tensor1 / tensor2", "x"_a, "tensor1"_a,
                "tensor2"_a, py::kw_only(), value);
  bind_function(m, "rsub", &rsub, "other - alpha * x", "x"_a, "other"_a, py::kw_only(), alpha);
  m.def("lerp", &lerp, Released(), "x"_a, "end"_a, "weight"_a, "x + weight * (end - x)");
  m.def("logit", &logit, Released(), "x"_a, "eps"_a = py::none(),
        "log(x / (1 - x)); with `eps`, of x limited to [eps, 1 - eps]");
  m.def("nan_to_num", &nan_to_num, Released(), "x"_a, "nan"_a = 0.0, "posinf"_a = py::none(),
        "neginf"_a = py::none(),
        "x with NaN, inf and -inf replaced; None means the largest and smallest number");
  m.def("isclose", &isclose, Released(), "x1"_a, "x2"_a, "rtol"_a = 1e-5, "atol"_a = 1e-8,
        "equal_nan"_a = false, "|x1 - x2| <= atol + rtol * |x2|, or equal: bool");
  m.def("allclose", &allclose, Released(), "x1"_a, "x2"_a, "rtol"_a = 1e-5, "atol"_a = 1e-8,
        "equal_nan"_a = false, "Whether all elements are close; one number, equal on all ranks");
}

static void bind_algebra(py::module_& m) {
  const auto added = [&m](const char* name, auto function, const char* a, const char* b,
                          const char* text) {
    bind_function(m, name, function, text, "x"_a, py::arg(a), py::arg(b), py::kw_only(),
                  "beta"_a = Number(1), "alpha"_a = Number(1));
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
      "equation"_a,
      "Sums of products over the labels that the result lacks: einsum(\"bij,bjk->bik\", x, y)");
  m.def("mv", &mv, Released(), "x"_a, "vec"_a, "A matrix times a vector");
  m.def("dot", &dot, Released(), "x"_a, "tensor"_a, "The sum of products of two vectors");
  m.def(
      "cdist",
      [](const Tensor& a, const Tensor& b, double p, const py::object&) {
        return released([&] { return cdist(a, b, p); });
      },
      "x1"_a, "x2"_a, "p"_a = 2.0, "compute_mode"_a = py::none(),
      "p-norms of the differences between rows: [..., n, m]");
  m.def("dist", &dist, Released(), "x"_a, "other"_a, "p"_a = 2.0, "The p-norm of x - other");
  m.def("cov", py::overload_cast<const Tensor&, double>(&cov), Released(), "x"_a, py::kw_only(),
        "correction"_a = 1.0, "Covariances of the rows of a matrix [variables, observations]");
  m.def("corrcoef", &corrcoef, Released(), "x"_a, "Correlations of the rows of a matrix");
  m.def("vander", &vander, Released(), "x"_a, "N"_a = -1, "increasing"_a = false,
        "Powers of a vector as columns");
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
      Released(), "y"_a, "x"_a = py::none(), py::kw_only(), "dx"_a = 1.0, "dim"_a = -1, text);
}

static void bind_integrals(py::module_& m) {
  bind_integral(m, "trapezoid", py::overload_cast<const Tensor&, const Tensor&, int>(&trapezoid),
                py::overload_cast<const Tensor&, double, int>(&trapezoid),
                "The integral along `dim` by the trapezoidal rule, of values at x or dx apart");
  bind_integral(m, "cumulative_trapezoid",
                py::overload_cast<const Tensor&, const Tensor&, int>(&cumulative_trapezoid),
                py::overload_cast<const Tensor&, double, int>(&cumulative_trapezoid),
                "Integrals along `dim` up to each point but the first");
}

py::object add_named_tuple(py::module_& m, const char* name, const char* fields, const char* text) {
  const py::object type = py::module_::import("collections").attr("namedtuple")(name, fields);
  type.attr("__module__") = "weft";
  type.attr("__doc__") = text;
  m.attr(name) = type;
  return type;
}

py::object named_tuple(const char* name, std::initializer_list<Tensor> results) {
  return py::module_::import("weft._weft").attr(name)(*py::cast(Tensors(results)));
}

static void bind_placing(py::module_& m) {
  const auto offset = "storage_offset"_a = 0;
  bind_function(
      m, "masked_scatter", &masked_scatter,
      "x with the elements where `mask` (bool) holds replaced by those of `source`, in order",
      "x"_a, "mask"_a, "source"_a);
  bind_function(m, "_take_flat", &take_flat, "", "x"_a, "index"_a);
  bind_function(
      m, "put", &put,
      "x with the elements at `index` of the flattened tensor replaced by those of `source`, or "
      "added",
      "x"_a, "index"_a, "source"_a, "accumulate"_a = false);
  bind_function(m, "diagonal_scatter", &diagonal_scatter, "x with a diagonal replaced by src",
                "x"_a, "src"_a, "offset"_a = 0, "dim1"_a = 0, "dim2"_a = 1);
  bind_function(
      m, "as_strided", &as_strided,
      "A copy whose element (i, j, ..) is element storage_offset + i * stride[0] + j * stride[1] "
      "+ .. of the flattened x",
      "x"_a, "size"_a, "stride"_a, offset);
  bind_function(m, "as_strided_scatter", &as_strided_scatter,
                "x with the elements of as_strided replaced by src", "x"_a, "src"_a, "size"_a,
                "stride"_a, offset);
  bind_function(m, "fill", &fill, "All elements `value`, in shape, dtype and layout of x", "x"_a,
                "value"_a);
  bind_function(m, "_embedding_bag", &embedding_bag, "Reduced rows of a table, by bag", "weight"_a,
                "ids"_a, "offsets"_a, "mode"_a, "scales"_a);
}

static void bind_counts(py::module_& m) {
  const auto none = py::none();
  bind_function(
      m, "histc", &histc,
      "How many elements are in each of `bins` equal intervals from min to max; of all elements "
      "if these are equal",
      "x"_a, "bins"_a = 100, "min"_a = 0.0, "max"_a = 0.0);
  add_named_tuple(m, "Histogram", "hist bin_edges", "The result of `histogram`.");
  add_named_tuple(m, "FractionAndExponent", "mantissa exponent", "The result of `frexp`.");
  const auto histogram_of = [](const Tensor& of, const std::variant<int64_t, Tensor>& bins,
                               const std::optional<std::vector<double>>& range,
                               const std::optional<Tensor>& weight, bool density) {
    const Histogram made = released([&] {
      return std::holds_alternative<Tensor>(bins)
                 ? histogram(of, std::get<Tensor>(bins), weight, density)
                 : histogram(of, std::get<int64_t>(bins), range, weight, density);
    });
    return named_tuple("Histogram", {made.hist, made.bin_edges});
  };
  m.def("histogram", histogram_of, "x"_a, "bins"_a, py::kw_only(), "range"_a = none,
        "weight"_a = none, "density"_a = false,
        "(hist, bin_edges): the number of elements between edges, which `bins` counts or is");
  bind_function(
      m, "bincount", &bincount,
      "How often each number from 0 on occurs, or the sum of the `weights` of its elements", "x"_a,
      "weights"_a = none, "minlength"_a = 0);
  bind_function(m, "_unique_consecutive", &unique_consecutive, "", "x"_a, "dim"_a);
  bind_function(m, "frexp", &frexp,
                "(mantissa, exponent): x is mantissa * 2^exponent, with a mantissa in [0.5, 1)",
                "x"_a);
}

static void bind_estimates(py::module_& m) {
  const auto keepdims = "keepdims"_a = false;
  bind_function(m, "mode", &mode,
                "The smallest of the most frequent elements along `axis`, and its last index",
                "x"_a, "axis"_a = -1, keepdims);
  bind_function(m, "_weighted_cov",
                py::overload_cast<const Tensor&, double, const std::optional<Tensor>&,
                                  const std::optional<Tensor>&>(&cov),
                "", "x"_a, "correction"_a, "fweights"_a, "aweights"_a);
  bind_function(m, "renorm", &renorm,
                "The slices of `dim` whose p-norm is above maxnorm, scaled to it", "x"_a, "p"_a,
                "dim"_a, "maxnorm"_a);
  bind_function(m, "_gradient", &gradient, "", "x"_a, "spacing"_a, "dims"_a, "edge_order"_a);
  bind_function(
      m, "combinations", &combinations,
      "All subsets of r elements of a vector: a row each; with_replacement lets elements repeat",
      "x"_a, "r"_a = 2, "with_replacement"_a = false);
  bind_function(m, "polygamma", &polygamma, "The n-th derivative of digamma", "n"_a, "x"_a);
  bind_function(m, "mvlgamma", &mvlgamma, "The logarithm of the gamma function of p dims", "x"_a,
                "p"_a);
}

static void bind_distributions(py::module_& m) {
  bind_function(m, "randint_like", &randint_like,
                "Integers in [low, high), in shape and layout of x", "x"_a, "low"_a, "high"_a);
  bind_function(m, "bernoulli", py::overload_cast<const Tensor&>(&bernoulli),
                "1 with the probability that the element, or p, is; else 0", "x"_a);
  bind_function(m, "bernoulli", py::overload_cast<const Tensor&, double>(&bernoulli), "", "x"_a,
                "p"_a);
  bind_function(m, "_normal", py::overload_cast<const Operand&, const Tensor&>(&normal), "",
                "mean"_a, "std"_a);
  bind_function(m, "_normal", py::overload_cast<const Tensor&, double>(&normal), "", "mean"_a,
                "std"_a);
  bind_function(m, "multinomial", &multinomial,
                "num_samples indices of the last dim, drawn in proportion to the elements", "x"_a,
                "num_samples"_a, "replacement"_a = false);
  bind_change(m, "bernoulli_", &bernoulli_, "Draws 1 with probability p, else 0", "p"_a = 0.5);
  bind_change(m, "exponential_", &exponential_, "Draws of the density lambd exp(-lambd x)",
              "lambd"_a = 1.0);
  bind_change(m, "cauchy_", &cauchy_, "Draws of a Cauchy distribution", "median"_a = 0.0,
              "sigma"_a = 1.0);
  bind_change(m, "geometric_", &geometric_,
              "Draws numbers of trials up to the first success, of probability p", "p"_a);
  bind_change(m, "log_normal_", &log_normal_, "Draws exp of normal values", "mean"_a = 1.0,
              "std"_a = 2.0);
  bind_change(m, "_random_", &random_, "Draws integers in [low, high)", "low"_a, "high"_a);
}

static void bind_networks_of_ops(py::module_& m) {
  bind_function(m, "gelu", py::overload_cast<const Tensor&, std::string_view>(&gelu),
                with_rule("gelu",
                          "x / 2 * (1 + erf(x / sqrt(2))), or with approximate='tanh' "
                          "x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))"),
                "x"_a, py::kw_only(), "approximate"_a = "none");
  bind_function(m, "mse_loss", &mse_loss,
                "(input - target)^2 element by element, of equal shapes: with reduction 'mean' its "
                "mean, 'sum' its sum, 'none' all of it",
                "input"_a, "target"_a, py::kw_only(), "reduction"_a = "mean");
}

/// PyTorch's functions, for python/weft/torch, which has their names and arguments.
static void bind_torch(py::module_& m) {
  bind_function(m, "_nonzero_static", &torch::nonzero_static, "", "x"_a, "size"_a, "fill_value"_a);
  bind_function(m, "_slice", &torch::slice, "", "x"_a, "dim"_a, "start"_a, "stop"_a, "step"_a);
  bind_function(m, "_tensordot", &torch::tensordot, "", "x1"_a, "x2"_a, "dims_of_x1"_a,
                "dims_of_x2"_a);
  bind_function(m, "_logsumexp", &torch::logsumexp, "", "x"_a, "dim"_a, "keepdim"_a);
  bind_function(m, "_squeeze", &torch::squeeze, "", "x"_a, "dim"_a);
  bind_function(m, "_rounded_quotient", &torch::div, "", "x"_a, "other"_a, "rounding_mode"_a);
  bind_function(m, "_round", &torch::round, "", "x"_a, "decimals"_a);
}

void bind_composed(py::module_& m) {
  bind_numbers(m);
  bind_algebra(m);
  bind_integrals(m);
  bind_placing(m);
  bind_counts(m);
  bind_estimates(m);
  bind_distributions(m);
  bind_networks_of_ops(m);
  bind_torch(m);
}

}  // namespace weft::python
