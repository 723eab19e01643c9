// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/reductions.h"

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "weft/error.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/shapes.h"

namespace weft::python {

namespace {

using Reduction = Tensor (*)(const Tensor&, const std::vector<int>&, bool);

constexpr NamedFunction<Reduction> kOverDims[] = {
    {"mean", mean, "The mean over `axis` (all dims unless given); of integers in float32"},
    {"max", max, "The largest element over `axis` (all dims unless given); NaN where one is"},
    {"min", min, "The smallest element over `axis` (all dims unless given); NaN where one is"},
    {"amax", max, "max", "max"},
    {"amin", min, "min", "min"},
    {"nansum", nansum, "The sum over `axis` of the elements that are not NaN", "sum"},
    {"nanmean", nanmean, "The mean over `axis` of the elements that are not NaN", "sum"},
    {"all", all, "Whether all elements over `axis` are not zero: bool; true of none"},
    {"any", any, "Whether any element over `axis` is not zero: bool; false of none"},
    {"sum_squares", sum_squares, "The sum of squares over `axis`, as float32"},
    {"count_nonzero", count_nonzero,
     "The number of nonzero elements (NaN included) over `axis`, all dims by default; int64",
     "sum"},
    {"norm", norm, "sqrt of the sum of squares over `axis`", "sum_squares"},
};

/// Over one dim, or over all elements as if they lay in one.
template <class Function>
Tensor over_one(const char* what, Function function, const Tensor& x, const py::object& axis,
                bool keepdims) {
  if (!axis.is_none()) {
    const int at = one_dim_of(what, axis);
    return released([&] { return function(x, at, keepdims); });
  }
  return released([&] {
    const Tensor flat = function(reshape(x, {x.numel()}), 0, false);
    return keepdims ? reshape(flat, Shape::filled(x.ndim(), 1)) : flat;
  });
}

template <class Function>
void bind_over_one(py::module_& m, const char* name, Function function, const char* op,
                   const char* text) {
  m.def(
      name,
      [name, function](const Tensor& x, const py::object& axis, bool keepdims) {
        return over_one(name, function, x, axis, keepdims);
      },
      "x"_a, "axis"_a = py::none(), "keepdims"_a = false, with_rule(op, text));
}

/// Reduces over `axis`. With () each element is reduced alone, over a new dim of size 1.
template <class Function>
Tensor over_dims(const Tensor& x, const py::object& axis, bool keepdims, const Function& function) {
  if (is_no_dim(axis)) {
    return released(
        [&] { return function(unsqueeze(x, x.ndim()), std::vector<int>{x.ndim()}, false); });
  }
  const std::vector<int> dims = dims_of(axis);
  return released([&] { return function(x, dims, keepdims); });
}

/// A reduction of elements as `dtype`.
void bind_total(py::module_& m, const char* name, Reduction function, const char* text) {
  m.def(
      name,
      [function](const Tensor& x, const py::object& axis, bool keepdims,
                 const std::optional<DType>& dtype) {
        return over_dims(x, axis, keepdims, [&](const Tensor& of, const auto& dims, bool keeps) {
          if (!dtype) return function(of, dims, keeps);
          return cast(function(cast(of, *dtype), dims, keeps), *dtype);
        });
      },
      "x"_a, "axis"_a = py::none(), "keepdims"_a = false, py::kw_only(), "dtype"_a = py::none(),
      with_rule(name, text));
}

void bind_spread(py::module_& m, const char* name,
                 Tensor (*function)(const Tensor&, const std::vector<int>&, double, bool),
                 const char* text) {
  m.def(
      name,
      [function](const Tensor& x, const py::object& axis, double correction, bool keepdims) {
        return over_dims(x, axis, keepdims, [&](const Tensor& of, const auto& dims, bool keeps) {
          return function(of, dims, correction, keeps);
        });
      },
      "x"_a, "axis"_a = py::none(), py::kw_only(), "correction"_a = 0.0, "keepdims"_a = false,
      text);
}

void bind_norms(py::module_& m) {
  m.def(
      "vector_norm",
      [](const Tensor& x, const py::object& axis, bool keepdims, double ord) {
        return over_dims(x, axis, keepdims, [&](const Tensor& of, const auto& dims, bool keeps) {
          return vector_norm(of, ord, dims, keeps);
        });
      },
      "x"_a, py::kw_only(), "axis"_a = py::none(), "keepdims"_a = false, "ord"_a = 2.0,
      "Over `axis` (all dims unless given): the ord-th root of the sum of magnitudes to that "
      "power; inf and -inf the largest and smallest magnitude, 0 the number of nonzero elements. "
      "Integers are converted to float32. The gradient of zeros is 0");
  m.def(
      "matrix_norm",
      [](const Tensor& x, bool keepdims, const py::object& ord) {
        if (py::isinstance<py::str>(ord) && ord.equal(py::str("fro"))) {
          return released([&] { return matrix_norm(x, keepdims); });
        }
        if (!PyNumber_Check(ord.ptr())) {
          fail("matrix_norm: the order is ", py::repr(ord).cast<std::string>(),
               ", expected 'fro', 1, -1, inf or -inf");
        }
        const double order = ord.cast<double>();
        return released([&] { return matrix_norm(x, order, keepdims); });
      },
      "x"_a, py::kw_only(), "keepdims"_a = false, "ord"_a = "fro",
      "Norms of the matrices in the last two dims: \"fro\", the root of the sum of squares; 1 "
      "and -1, the largest and smallest sum of magnitudes of a column; inf and -inf, of a row. "
      "ValueError for an order that needs singular values");
}

}  // namespace

void bind_reductions(py::module_& m) {
  for (const auto& f : kOverDims) {
    m.def(
        f.name,
        [function = f.function](const Tensor& x, const py::object& axis, bool keepdims) {
          return over_dims(x, axis, keepdims, function);
        },
        "x"_a, "axis"_a = py::none(), "keepdims"_a = false, with_rule(f.op, f.text));
  }
  bind_total(m, "sum", sum,
             "The sum over `axis` (all dims unless given), of elements as `dtype`; integers and "
             "bool sum up in int64, without sign in uint64, unless it is given");
  bind_total(m, "prod", prod,
             "The product over `axis` (all dims unless given), of elements as `dtype`; integers "
             "and bool multiply in int64, without sign in uint64, unless it is given");
  bind_spread(m, "var", var,
              "The variance over `axis` (all dims unless given): squares of the differences from "
              "the mean, summed and divided by their number - correction; of integers in float32");
  bind_spread(m, "std", stddev,
              "The standard deviation over `axis` (all dims unless given), the square root of "
              "`var`; of integers in float32. The gradient of equal elements is 0");
  bind_norms(m);
  bind_over_one(m, "argmax", &argmax, "argmax",
                "The index (int64, of the whole tensor) of the first largest element along `axis`");
  bind_over_one(m, "argmin", &argmin, "argmin",
                "The index (int64, of the whole tensor) of the first least element along `axis`");
  bind_over_one(m, "logsumexp", &logsumexp, "logsumexp", "log of the sum of exp along `axis`");
}

}  // namespace weft::python
