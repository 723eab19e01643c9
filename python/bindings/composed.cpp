// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/composed.h"

#include <pybind11/eval.h>

#include <algorithm>
#include <sstream>
#include <variant>

#include "python/bindings/bindings.h"
#include "weft/einsum.h"
#include "weft/ops.h"
#include "weft/torch.h"

namespace weft::python {

Signature::Signature(const std::string& text) : name_(text.substr(0, text.find('('))) {
  if (name_.size() == text.size()) return;
  std::istringstream inside(text.substr(name_.size() + 1, text.size() - name_.size() - 2));
  for (std::string argument; std::getline(inside >> std::ws, argument, ',');) {
    const size_t end = std::min(argument.find('='), argument.size());
    auto& [name, value] = arguments_.emplace_back(argument.substr(0, end), py::object());
    if (end < argument.size()) value = py::eval(argument.substr(end + 1));
  }
}

void Signature::declare_in(py::detail::function_record& record) const {
  using namespace py::detail;
  const size_t expected = record.nargs_pos;  // of all, where none is for py::args
  for (const auto& [name, value] : arguments_) {
    py::arg argument(name.c_str());
    if (name == "*") {
      process_attribute<py::kw_only>::init({}, &record);
    } else if (value) {
      process_attribute<py::arg_v>::init(argument = value, &record);
    } else if (name[0] != '*') {  // py::args declares itself
      process_attribute<py::arg>::init(argument, &record);
    }
  }
  if (!record.args.empty() && !record.has_args && record.args.size() != expected) {
    fail(name_, ": number of arguments is ", record.args.size(), ", expected ", expected);
  }
}

std::tuple<Tensor, Tensor, Tensor> for_python(const UniqueConsecutive& results) {
  return {results.values, results.inverse, results.counts};
}

py::object for_python(const ValuesAndIndices& results) {
  return named_tuple("ValuesAndIndices", {results.values, results.indices});
}

py::object for_python(const Histogram& results) {
  return named_tuple("Histogram", {results.hist, results.bin_edges});
}

py::object for_python(const FractionAndExponent& results) {
  return named_tuple("FractionAndExponent", {results.mantissa, results.exponent});
}

static void bind_numbers(py::module_& m) {
  def(m, "addcmul(x, tensor1, tensor2, *, value=1)", &addcmul, "x + value * tensor1 * tensor2");
  def(m, "addcdiv(x, tensor1, tensor2, *, value=1)", &addcdiv, "x + value * tensor1 / tensor2");
  def(m, "rsub(x, other, *, alpha=1)", &rsub, "other - alpha * x");
  def(m, "lerp(x, end, weight)", &lerp, "x + weight * (end - x)");
  def(m, "logit(x, eps=None)", &logit,
      "log(x / (1 - x)); with `eps`, of x limited to [eps, 1 - eps]");
  def(m, "nan_to_num(x, nan=0.0, posinf=None, neginf=None)", &nan_to_num,
      "x with NaN, inf and -inf replaced; None means the largest and smallest number");
  def(m, "isclose(x1, x2, rtol=1e-5, atol=1e-8, equal_nan=False)", &isclose,
      "|x1 - x2| <= atol + rtol * |x2|, or equal: bool");
  def(m, "allclose(x1, x2, rtol=1e-5, atol=1e-8, equal_nan=False)", &allclose,
      "True when all elements are close; one number, equal on all ranks");
}

/// The tensors after the equation, or those of one list.
static Tensors einsum_operands(const py::args& given) {
  const bool is_list = given.size() == 1 && !tensor_of(given[0]);
  return tensors_in("einsum", is_list ? py::tuple(given[0]) : py::tuple(given));
}

static void bind_algebra(py::module_& m) {
  def(m, "addmm(x, mat1, mat2, *, beta=1, alpha=1)", &addmm, "beta * x + alpha * (mat1 @ mat2)");
  def(m, "addmv(x, mat, vec, *, beta=1, alpha=1)", &addmv, "beta * x + alpha * (mat @ vec)");
  def(m, "addr(x, vec1, vec2, *, beta=1, alpha=1)", &addr, "beta * x + alpha * outer(vec1, vec2)");
  def(m, "baddbmm(x, batch1, batch2, *, beta=1, alpha=1)", &baddbmm,
      "beta * x + alpha * (batch1 @ batch2)");
  def(m, "addbmm(x, batch1, batch2, *, beta=1, alpha=1)", &addbmm,
      "beta * x + alpha * the sum of batch1 @ batch2 over the batch");
  def(m, "einsum(equation, *given, memory=None)",
      "Sums of products over the labels that the result lacks: einsum(\"bij,bjk->bik\", x, y). "
      "Operands are contracted in the order of einsum_path",
      [](const std::string& equation, const py::args& given, std::optional<int64_t> memory) {
        const Tensors operands = einsum_operands(given);
        return released([&] { return einsum(equation, operands, memory); });
      });
  def(m, "einsum_path(equation, *given, memory=None)",
      "(path, text): the order in which einsum contracts the operands, as numpy.einsum_path, and "
      "what it predicts. It is the order of least time over the mesh among those whose "
      "intermediate results take at most `memory` bytes of a rank each; ValueError if none does",
      [](const std::string& equation, const py::args& given, std::optional<int64_t> memory) {
        const Tensors operands = einsum_operands(given);
        const EinsumPath path = released([&] { return einsum_path(equation, operands, memory); });
        py::list pairs;
        pairs.append("einsum_path");
        for (const EinsumStep& step : path.steps)
          pairs.append(py::make_tuple(step.first, step.second));
        return py::make_tuple(pairs, concat(path));
      });
  def(m, "mv(x, vec)", &mv, "A matrix times a vector");
  def(m, "dot(x, tensor)", &dot, "The sum of products of two vectors");
  def(m, "cdist(x1, x2, p=2.0, compute_mode=None)",
      "p-norms of the differences between rows: [..., n, m]",
      [](const Tensor& a, const Tensor& b, double p, const py::object&) {
        return released([&] { return cdist(a, b, p); });
      });
  def(m, "dist(x, other, p=2.0)", &dist, "The p-norm of x - other");
  def(m, "cov(x, *, correction=1.0)", py::overload_cast<const Tensor&, double>(&cov),
      "Covariances of the rows of a matrix [variables, observations]");
  def(m, "corrcoef(x)", &corrcoef, "Correlations of the rows of a matrix");
  def(m, "vander(x, N=-1, increasing=False)", &vander, "Powers of a vector as columns");
}

/// trapezoid(y, x=None, *, dx, dim) of one kind.
static void bind_integral(py::module_& m, const Signature& signature,
                          Tensor (*by_points)(const Tensor&, const Tensor&, int),
                          Tensor (*by_steps)(const Tensor&, double, int), const char* text) {
  def(m, signature, text,
      [by_points, by_steps](const Tensor& y, const std::optional<Tensor>& x, double dx, int dim) {
        return x ? by_points(y, *x, dim) : by_steps(y, dx, dim);
      });
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
  def(m, "masked_scatter(x, mask, source)", &masked_scatter,
      "x with the elements where `mask` (bool) holds replaced by those of `source`, in order");
  def(m, "put(x, index, source, accumulate=False)", &put,
      "x with the elements at `index` of the flattened tensor replaced by those of `source`, or "
      "added");
  def(m, "diagonal_scatter(x, src, offset=0, dim1=0, dim2=1)", &diagonal_scatter,
      "x with a diagonal replaced by src");
  def(m, "as_strided(x, size, stride, storage_offset=0)", &as_strided,
      "A copy whose element (i, j, ..) is element storage_offset + i * stride[0] + j * stride[1] + "
      ".. of the flattened x");
  def(m, "as_strided_scatter(x, src, size, stride, storage_offset=0)", &as_strided_scatter,
      "x with the elements of as_strided replaced by src");
  def(m, "fill(x, value)", &fill, "All elements `value`, in shape, dtype and layout of x");
  def(m, "_embedding_bag(weight, ids, offsets, mode, scales)", &embedding_bag,
      "Reduced rows of a table, by bag");
}

static void bind_estimates(py::module_& m) {
  def(m, "histc(x, bins=100, min=0.0, max=0.0)", &histc,
      "Counts the elements in each of `bins` equal intervals from min to max; of all elements if "
      "these are equal");
  add_named_tuple(m, "Histogram", "hist bin_edges", "The result of `histogram`.");
  add_named_tuple(m, "FractionAndExponent", "mantissa exponent", "The result of `frexp`.");
  def(m, "histogram(x, bins, *, range=None, weight=None, density=False)",
      "(hist, bin_edges): the number of elements between edges, which `bins` counts or is",
      [](const Tensor& of, const std::variant<int64_t, Tensor>& bins,
         const std::optional<std::vector<double>>& range, const std::optional<Tensor>& weight,
         bool density) {
        const auto* edges = std::get_if<Tensor>(&bins);
        return edges ? histogram(of, *edges, weight, density)
                     : histogram(of, std::get<int64_t>(bins), range, weight, density);
      });
  def(m, "bincount(x, weights=None, minlength=0)", &bincount,
      "Counts of the numbers from 0 on, or sums of the `weights` of their elements");
  def(m, "_unique_consecutive(x, dim)", &unique_consecutive);
  def(m, "frexp(x)", &frexp,
      "(mantissa, exponent): x is mantissa * 2^exponent, with a mantissa in [0.5, 1)");
  def(m, "mode(x, axis=-1, keepdims=False)", &mode,
      "The smallest of the most frequent elements along `axis`, and its last index");
  def(m, "_weighted_cov(x, correction, fweights, aweights)",
      py::overload_cast<const Tensor&, double, const std::optional<Tensor>&,
                        const std::optional<Tensor>&>(&cov));
  def(m, "renorm(x, p, dim, maxnorm)", &renorm,
      "The slices of `dim` whose p-norm is above maxnorm, scaled to it");
  def(m, "_gradient(x, spacing, dims, edge_order)", &gradient);
  def(m, "combinations(x, r=2, with_replacement=False)", &combinations,
      "All subsets of r elements of a vector: a row each; with_replacement lets elements repeat");
  def(m, "polygamma(n, x)", &polygamma, "The n-th derivative of digamma");
  def(m, "mvlgamma(x, p)", &mvlgamma, "The logarithm of the gamma function of p dims");
}

static void bind_distributions(py::module_& m) {
  def(m, "bernoulli(x)", py::overload_cast<const Tensor&>(&bernoulli),
      "1 with the probability that the element, or p, is; else 0");
  def(m, "bernoulli(x, p)", py::overload_cast<const Tensor&, double>(&bernoulli));
  def(m, "_normal(mean, std)", py::overload_cast<const Operand&, const Tensor&>(&normal));
  def(m, "_normal(mean, std)", py::overload_cast<const Tensor&, double>(&normal));
  def(m, "multinomial(x, num_samples, replacement=False)", &multinomial,
      "num_samples indices of the last dim, drawn in proportion to the elements");
  bind_change(m, "bernoulli_(x, p=0.5)", &bernoulli_, "Draws 1 with probability p, else 0");
  bind_change(m, "exponential_(x, lambd=1.0)", &exponential_,
              "Draws of the density lambd exp(-lambd x)");
  bind_change(m, "cauchy_(x, median=0.0, sigma=1.0)", &cauchy_, "Draws of a Cauchy distribution");
  bind_change(m, "geometric_(x, p)", &geometric_,
              "Draws numbers of trials up to the first success, of probability p");
  bind_change(m, "log_normal_(x, mean=1.0, std=2.0)", &log_normal_, "Draws exp of normal values");
  bind_change(m, "_random_(x, low, high)", &random_, "Draws integers in [low, high)");
}

// PyTorch's functions, for python/weft/torch, which has their names and arguments.

namespace {

constexpr NamedFunction<Reduction> kOfElements[] = {
    {"all", all, "True where all elements along `dim` are not zero: bool; true of none"},
    {"any", any, "True where any element along `dim` is not zero: bool; false of none"},
    {"amax", max, "The largest element along `dim`; NaN where one is", "max"},
    {"amin", min, "The smallest element along `dim`; NaN where one is", "min"},
    {"count_nonzero", count_nonzero, "The number of nonzero elements along `dim`: int64", "sum"},
};
struct ReductionAsDType {
  NamedFunction<Reduction> function;
  bool is_total = true;
};
constexpr ReductionAsDType kAsDType[] = {
    {{"mean", mean, "The mean along `dim`, of elements as `dtype`"}, false},
    {{"nanmean", nanmean, "The mean of the elements along `dim` that are not NaN", "sum"}, false},
    {{"sum", sum, "The sum along `dim`, of elements as `dtype`; of integers in int64"}},
    {{"prod", prod, "The product along `dim`, of elements as `dtype`; of integers in int64"}},
    {{"nansum", nansum, "The sum of the elements along `dim` that are not NaN", "sum"}},
};

/// Along all dims for None and for no dims; a tensor without dims counts as one of one element.
Tensor along(const Tensor& x, const std::optional<DimList>& dim, bool keepdim, Reduction function) {
  const DimList dims = dim.value_or(DimList());
  if (x.ndim() > 0) return function(x, dims, keepdim);
  return reshape(function(unsqueeze(x, 0), dims, false), {});
}

/// The dtype of totals: the given one, or int64 for integers without sign.
std::optional<DType> total_dtype(const Tensor& x, const std::optional<DType>& given) {
  return !given && is_unsigned(x.dtype()) ? DType::i64 : given;
}

void bind_torch_reductions(py::module_& m) {
  for (const auto& f : kOfElements) {
    def(m, concat("_torch_", f.name, "(input, dim=None, keepdim=False)"), with_rule(f.op, f.text),
        [f](const Tensor& x, const std::optional<DimList>& dim, bool keepdim) {
          return along(x, dim, keepdim, f.function);
        });
  }
  for (const auto& [f, is_total] : kAsDType) {
    def(m, concat("_torch_", f.name, "(input, dim=None, keepdim=False, *, dtype=None)"),
        with_rule(f.op, f.text),
        [f, is_total](const Tensor& x, const std::optional<DimList>& dim, bool keepdim,
                      const std::optional<DType>& given) {
          return as_dtype(x, is_total ? total_dtype(x, given) : given,
                          [&](const Tensor& of) { return along(of, dim, keepdim, f.function); });
        });
  }
}

/// Binds max or min: of all elements, along a dim with indices, or of two tensors.
void bind_extreme(py::module_& m, const std::string& name, Tensor (*of_all)(const Tensor&),
                  ValuesAndIndices (*along_dim)(const Tensor&, int, bool),
                  Tensor (*of_two)(const Tensor&, const Tensor&)) {
  using DimOrTensor = std::variant<Tensor, DimList>;
  def(m, concat("_torch_", name, "(input, dim=None, keepdim=False, *, other=None)"),
      concat(name, "(x); ", name, "(x, dim) as (values, indices); or of two tensors").c_str(),
      [=](const Tensor& x, const std::optional<DimOrTensor>& dim, bool keepdim,
          MaybeTensor second) -> py::object {
        if (dim && std::holds_alternative<Tensor>(*dim)) second = std::get<Tensor>(*dim);
        if (second) return py::cast(released([&] { return of_two(x, second); }));
        const DimList dims = dim ? std::get<DimList>(*dim) : DimList();
        if (dims.empty()) return py::cast(released([&] { return of_all(x); }));
        if (dims.size() > 1) fail(name, ": number of dims is ", dims.size(), ", expected 1");
        return for_python(released([&] { return along_dim(x, dims[0], keepdim); }));
      });
}

/// Binds a function along a dim of elements as `dtype`.
void bind_as_dtype(py::module_& m, const Signature& signature,
                   Tensor (*function)(const Tensor&, int), bool is_total, const char* text) {
  def(m, signature, text,
      [function, is_total](const Tensor& x, int dim, const std::optional<DType>& given) {
        return as_dtype(x, is_total ? total_dtype(x, given) : given,
                        [&](const Tensor& of) { return function(of, dim); });
      });
}

}  // namespace

static void bind_torch(py::module_& m) {
  bind_torch_reductions(m);
  bind_as_dtype(m, "_torch_softmax(input, dim=-1, *, dtype=None)", &torch::softmax, false,
                with_rule("softmax", "exp(x) / sum of exp(x) along `dim`, as `dtype`"));
  bind_as_dtype(m, "_torch_log_softmax(input, dim=-1, *, dtype=None)", &torch::log_softmax, false,
                with_rule("log_softmax", "The logarithm of softmax, as `dtype`"));
  bind_as_dtype(m, "_torch_cumsum(input, dim, *, dtype=None)", &torch::cumsum, true,
                "The sum of all elements up to each along `dim`, as `dtype`");
  bind_as_dtype(m, "_torch_cumprod(input, dim, *, dtype=None)", &torch::cumprod, true,
                "The product of all elements up to each along `dim`, as `dtype`");
  bind_extreme(m, "max", &torch::max, &torch::max, &torch::max);
  bind_extreme(m, "min", &torch::min, &torch::min, &torch::min);
  def(m, "_torch_argmax(input, dim=None, keepdim=False)", &torch::argmax,
      "The index (int64) of the first largest element, of the flattened tensor or along `dim`");
  def(m, "_torch_argmin(input, dim=None, keepdim=False)", &torch::argmin,
      "The index (int64) of the first least element, of the flattened tensor or along `dim`");
  def(m, "_torch_logsumexp(input, dim=(), keepdim=False)",
      taking<Tensor, DimList, bool>(&torch::logsumexp),
      "log of the sum of exp along one dim or several, or of all elements");
  def(m, "_torch_cat(tensors, dim=0)", &torch::cat,
      "Joined along a dim; empty tensors of one dim are left out");
  def(m, "_torch_diagonal(input, offset=0, dim1=0, dim2=1)", &torch::diagonal,
      "Elements (i, i + offset) of two dims, the first two unless given");
  def(m, "_torch_equal(input, other)", &torch::equal,
      "True when both have the same shape and elements: one bool, equal on all ranks");
  def(m, "_torch_nonzero_static(input, *, size, fill_value=-1)", &torch::nonzero_static,
      "The first `size` rows of nonzero, with rows of fill_value where there are fewer");
  def(m, "_torch_slice(input, dim=0, start=None, end=None, step=1)", &torch::slice,
      "Elements start, start + step, ... before end of `dim`");
  def(m, "_torch_squeeze(input, dim=None)", taking<Tensor, std::optional<DimList>>(&torch::squeeze),
      "Removes the dims of size 1, or those of `dim` that have it");
  def(m, "_torch_take(input, index)", &take_flat, "Elements of the flattened tensor");
  def(m, "_tensordot(x1, x2, dims_of_x1, dims_of_x2)", &torch::tensordot);
  def(m, "_rounded_quotient(x, other, rounding_mode)", &torch::div);
  def(m, "_torch_round(input, *, decimals=0)", &torch::round,
      "Rounds to the nearest number with so many decimals; halves to even");
}

Bind bind_linalg;
Bind bind_complex;

void bind_composed(py::module_& m) {
  bind_numbers(m);
  bind_algebra(m);
  bind_integral(m, "trapezoid(y, x=None, *, dx=1.0, dim=-1)", &trapezoid, &trapezoid,
                "The integral along `dim` by the trapezoidal rule, of values at x or dx apart");
  bind_integral(m, "cumulative_trapezoid(y, x=None, *, dx=1.0, dim=-1)", &cumulative_trapezoid,
                &cumulative_trapezoid, "Integrals along `dim` up to each point but the first");
  bind_placing(m);
  bind_estimates(m);
  bind_distributions(m);
  def(m, "gelu(x, *, approximate='none')",
      py::overload_cast<const Tensor&, std::string_view>(&gelu),
      with_rule("gelu",
                "x / 2 * (1 + erf(x / sqrt(2))), or with approximate='tanh' x / 2 * (1 + "
                "tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))"));
  def(m, "mse_loss(input, target, *, reduction='mean')", &mse_loss,
      "(input - target)^2 element by element, of equal shapes: with reduction 'mean' its mean, "
      "'sum' its sum, 'none' all of it");
  bind_torch(m);
  bind_linalg(m);
  bind_complex(m);
}

}  // namespace weft::python
