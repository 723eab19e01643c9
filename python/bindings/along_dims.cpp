// SPDX-License-Identifier: Apache-2.0
#include <variant>

#include "python/bindings/bindings.h"
#include "weft/linalg.h"
#include "weft/ops.h"

// Functions along dims: reductions, orders, and elements that indices select.

namespace weft::python {

namespace {

constexpr NamedFunction<Reduction> kOverDims[] = {
    {"mean", mean, "The mean over `axis` (all dims unless given); of integers in float32"},
    {"max", max, "The largest element over `axis` (all dims unless given); NaN where one is"},
    {"min", min, "The smallest element over `axis` (all dims unless given); NaN where one is"},
    {"amax", max, "max", "max"},
    {"amin", min, "min", "min"},
    {"nansum", nansum, "The sum over `axis` of the elements that are not NaN", "sum"},
    {"nanmean", nanmean, "The mean over `axis` of the elements that are not NaN", "sum"},
    {"all", all, "True where all elements over `axis` are not zero: bool; true of none"},
    {"any", any, "True where any element over `axis` is not zero: bool; false of none"},
    {"sum_squares", sum_squares, "The sum of squares over `axis`, as float32"},
    {"count_nonzero", count_nonzero,
     "The number of nonzero elements (NaN included) over `axis`, all dims by default; int64",
     "sum"},
    {"norm", norm, "sqrt of the sum of squares over `axis`", "sum_squares"},
};

/// Binds a function over one dim, or over all elements as if they lay in one.
template <class Function>
void bind_over_one(py::module_& m, const char* name, Function function, const char* text) {
  def(m, concat(name, "(x, axis=None, keepdims=False)"), with_rule(name, text),
      [name, function](const Tensor& x, const py::object& axis, bool keepdims) {
        const auto at = axis.is_none() ? std::nullopt : std::optional(dim_number(name, axis));
        return released([&] {
          if (at) return function(x, *at, keepdims);
          const Tensor flat = function(reshape(x, {x.numel()}), 0, false);
          return keepdims ? reshape(flat, Shape::filled(x.ndim(), 1)) : flat;
        });
      });
}

using MaybeDims = std::optional<DimList>;

/// Reduces over `axis`. With () each element is reduced alone, over a new dim of size 1.
template <class Function>
Tensor over_dims(const Tensor& x, const MaybeDims& axis, bool keepdims, const Function& function) {
  if (!is_no_dim(axis)) return function(x, dims_of(axis), keepdims);
  return function(unsqueeze(x, x.ndim()), std::vector<int>{x.ndim()}, false);
}

/// A reduction of elements as `dtype`.
void bind_total(py::module_& m, const char* name, Reduction function, const char* text) {
  def(m, concat(name, "(x, axis=None, keepdims=False, *, dtype=None)"), with_rule(name, text),
      [function](const Tensor& x, const MaybeDims& axis, bool keepdims,
                 const std::optional<DType>& dtype) {
        return as_dtype(x, dtype,
                        [&](const Tensor& of) { return over_dims(of, axis, keepdims, function); });
      });
}

void bind_spread(py::module_& m, const char* name,
                 Tensor (*function)(const Tensor&, const std::vector<int>&, double, bool),
                 const char* text) {
  def(m, concat(name, "(x, axis=None, *, correction=0.0, keepdims=False)"), text,
      [function](const Tensor& x, const MaybeDims& axis, double correction, bool keepdims) {
        return over_dims(x, axis, keepdims, [&](const Tensor& of, const auto& dims, bool keeps) {
          return function(of, dims, correction, keeps);
        });
      });
}

}  // namespace

void bind_reductions(py::module_& m) {
  for (const auto& f : kOverDims) {
    def(m, concat(f.name, "(x, axis=None, keepdims=False)"), with_rule(f.op, f.text),
        [function = f.function](const Tensor& x, const MaybeDims& axis, bool keepdims) {
          return over_dims(x, axis, keepdims, function);
        });
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
  def(m, "vector_norm(x, *, axis=None, keepdims=False, ord=2.0)",
      "The ord-th root of the sum over `axis` (all dims unless given) of magnitudes to that "
      "power; inf and -inf the largest and smallest magnitude, 0 the number of nonzero elements. "
      "Integers are converted to float32. The gradient of zeros is 0",
      [](const Tensor& x, const MaybeDims& axis, bool keepdims, double ord) {
        return over_dims(x, axis, keepdims, [&](const Tensor& of, const auto& dims, bool keeps) {
          return vector_norm(of, ord, dims, keeps);
        });
      });
  def(m, "matrix_norm(x, *, keepdims=False, ord='fro')",
      "Norms of the matrices in the last two dims: \"fro\", the root of the sum of squares; 1 and "
      "-1, the largest and smallest sum of magnitudes of a column; inf and -inf, of a row; 2 and "
      "-2, the largest and smallest singular value; \"nuc\", their sum",
      [](const Tensor& x, bool keepdims, const py::object& ord) {
        if (py::isinstance<py::str>(ord) && ord.equal(py::str("fro"))) {
          return released([&] { return matrix_norm(x, keepdims); });
        }
        if (py::isinstance<py::str>(ord) && ord.equal(py::str("nuc"))) {
          return released([&] { return linalg::nuclear_norm(x, keepdims); });
        }
        if (!PyNumber_Check(ord.ptr())) {
          fail("matrix_norm: the order is ", py::repr(ord),
               ", expected 'fro', 'nuc', 1, -1, 2, -2, inf or -inf");
        }
        const double order = ord.cast<double>();
        return released([&] { return matrix_norm(x, order, keepdims); });
      });
  bind_over_one(m, "argmax", &argmax,
                "The index (int64, of the whole tensor) of the first largest element along `axis`");
  bind_over_one(m, "argmin", &argmin,
                "The index (int64, of the whole tensor) of the first least element along `axis`");
  bind_over_one(m, "logsumexp", &logsumexp, "log of the sum of exp along `axis`");
}

/// Binds a median of all elements, and along a dim as a pair.
static void bind_median(py::module_& m, const char* name, Tensor (*of_all)(const Tensor&),
                        ValuesAndIndices (*along_dim)(const Tensor&, int, bool), const char* text) {
  def(m, concat(name, "(x, axis=None, keepdims=False)"), text,
      [=](const Tensor& of, const std::optional<int>& along, bool keeps) -> py::object {
        if (!along) return py::cast(released([&] { return of_all(of); }));
        return for_python(released([&] { return along_dim(of, *along, keeps); }));
      });
}

/// Binds quantiles for one q, or several.
template <class Function>
static void bind_quantile(py::module_& m, const char* name, const Function& function,
                          const char* text) {
  def(m, concat(name, "(x, q, axis=None, keepdims=False, *, interpolation='linear')"), text,
      [function](const Tensor& x, const std::variant<double, std::vector<double>>& q,
                 const std::optional<int>& along, bool keepdims, const std::string& between) {
        return std::visit(
            [&](const auto& which) { return function(x, which, along, keepdims, between); }, q);
      });
}

static void bind_orders(py::module_& m) {
  add_named_tuple(m, "ValuesAndIndices", "values indices",
                  "Elements, and where they lie along the dim (int64).");
  def(m, "_sort_along(x, axis=-1, descending=False)", &sort_along);
  def(m, "topk(x, k, axis=-1, largest=True, sorted=True)",
      "The k largest, or smallest, elements along `axis`, always in order: (values, indices)",
      [](const Tensor& of, int64_t k, int along, bool largest, bool) {
        return topk(of, k, along, largest);
      });
  def(m, "cummax(x, axis)", &cummax,
      "The largest of all elements up to each along `axis`, and its last index; from a NaN on, "
      "NaN: (values, indices)");
  def(m, "cummin(x, axis)", &cummin,
      "The smallest of all elements up to each along `axis`, and its last index; from a NaN on, "
      "NaN: (values, indices)");
  def(m, "kthvalue(x, k, axis=-1, keepdims=False)", &kthvalue,
      "The k-th smallest element along `axis`, counted from 1: (values, indices)");
  bind_median(m, "median", &median, &median,
              "The lower of the two middle elements, NaN where there is one; along `axis` (values, "
              "indices)");
  bind_median(
      m, "nanmedian", &nanmedian, &nanmedian,
      "The lower of the two middle elements that are not NaN; along `axis` (values, indices)");
  bind_quantile(
      m, "quantile", [](const auto&... arguments) { return quantile(arguments...); },
      "Quantile q in [0, 1] along `axis`, or of all elements; NaN where there is one. Several q "
      "make a first dim. `interpolation`: 'linear', 'lower', 'higher', 'nearest' or 'midpoint'");
  bind_quantile(
      m, "nanquantile", [](const auto&... arguments) { return nanquantile(arguments...); },
      "Quantile q in [0, 1] along `axis`, or of all elements, of those that are not NaN; see "
      "`quantile`");
}

static void bind_scatters(py::module_& m) {
  def(m, "index_put(x, indices, values, accumulate=False)",
      "x with the elements at `indices`, a tensor or None for each dim, replaced by `values`, or "
      "added",
      [](const Tensor& of, const std::vector<MaybeTensor>& indices, const Operand& values,
         bool accumulate) {
        std::vector<DimIndex> all;
        int along = 0;
        for (const Tensor& one : indices) {
          if (!one || one.dtype() != DType::boolean) {
            if (one) all.push_back({along, one});
            ++along;
            continue;
          }
          for (const DimIndex& places : indices_of_mask(one, along)) all.push_back(places);
          along += one.ndim();
        }
        return index_put(of, all, values, accumulate);
      });
  def(m, "index_add(x, dim, index, source, *, alpha=1)", &index_add,
      "x with slice i of alpha * source added to slice index[i] of `dim`");
  def(m, "index_copy(x, dim, index, source)", &index_copy,
      "x with slice index[i] of `dim` replaced by slice i of `source`");
  def(m, "index_fill(x, dim, index, value)", &index_fill,
      "x with the slices `index` of `dim` filled with `value`");
  def(m, "scatter_add(x, dim, index, src)", &scatter_add,
      "x with src[.., i, ..] added to element index[.., i, ..] along `dim`");
  def(m, "scatter_reduce(x, dim, index, src, reduce, *, include_self=True)", &scatter_reduce,
      "x with element index[.., i, ..] along `dim` combined with src[.., i, ..]: the sum, prod, "
      "mean, amax or amin of them; of x too if include_self");
  def(m, "index_reduce(x, dim, index, source, reduce, *, include_self=True)", &index_reduce,
      "The same for slices of `dim`, as index_add");
  def(m, "_scatter_along(x, dim, index, src)", &scatter_along_dim);
  def(m, "select_scatter(x, src, dim, index)", &select_scatter,
      "x with element `index` of `dim` replaced by src");
  def(m, "_slice_scatter(x, src, dim, start, stop, step)", &slice_scatter);
}

void bind_selection(py::module_& m) {
  bind_orders(m);
  bind_scatters(m);
  def(m, "gather(x, axis, index)", &gather,
      "Element index[.., i, ..] along `axis` for each element of `index`, whose other dims may be "
      "smaller than those of x");
  def(m, "masked_select(x, mask)", &masked_select,
      "The elements where `mask` (bool) holds, in row-major order: [n]");
  def(m, "isin(elements, test_elements)", &isin,
      "True where the element is one of test_elements: bool");
  def(m, "_torch_constant_pad_nd(input, pad, value=0.0)", &constant_pad,
      "pad[0] elements `value` before and pad[1] behind the last dim, [2] and [3] at the one "
      "before it, and so on; negative numbers cut");
  def(m, "argwhere(x)", &argwhere, "The indices of the nonzero elements: [n, dims]");
  def(m, "one_hot(x, num_classes=-1)", &one_hot,
      "x [...] as rows [..., classes] that are 1 at the element's number, else 0: int64");
}

/// The dim given; the only one of a tensor of one dim.
static int only_dim(const char* what, const Tensor& x, const std::optional<int>& axis) {
  if (!axis && x.ndim() != 1)
    fail(what, ": axis is missing, expected one of the ", x.ndim(), " of ", x.shape());
  return axis.value_or(0);
}

static void bind_totals(py::module_& m, const char* name,
                        Tensor (*function)(const Tensor&, int, bool), const char* text) {
  def(m, concat(name, "(x, axis=None, *, dtype=None, include_initial=False)"),
      with_rule(name, text),
      [name, function](const Tensor& x, const std::optional<int>& axis,
                       const std::optional<DType>& dtype, bool include_initial) {
        const int dim = only_dim(name, x, axis);
        return as_dtype(x, dtype,
                        [&](const Tensor& of) { return function(of, dim, include_initial); });
      });
}

static void bind_orders(py::module_& m, const char* name,
                        Tensor (*function)(const Tensor&, int, bool), const std::string& text) {
  def(m, concat(name, "(x, axis=-1, descending=False, stable=True)"), text.c_str(),
      [function](const Tensor& x, int axis, bool descending, bool) {
        return function(x, axis, descending);
      });
}

static void bind_searches(py::module_& m) {
  const auto bind = [&m](const char* function, const char* tuple, const char* fields,
                         const std::vector<Tensor Unique::*>& members, const char* text) {
    const py::object type =
        add_named_tuple(m, tuple, fields, concat("The result of `", function, "`.").c_str());
    def(m, concat(function, "(x)"), text, [type, members](const Tensor& x) {
      const Unique found = released([&] { return unique(x); });
      py::list chosen;
      for (const auto member : members) chosen.append(found.*member);
      return type(*chosen);
    });
  };
  bind("unique_all", "UniqueAll", "values indices inverse_indices counts",
       {&Unique::values, &Unique::indices, &Unique::inverse, &Unique::counts},
       "The distinct elements in order, the first index of each in the flattened tensor, the index "
       "of each element of x among them, and their counts. NaNs are all distinct");
  bind("unique_counts", "UniqueCounts", "values counts", {&Unique::values, &Unique::counts},
       "The distinct elements of x in order, and their counts. NaNs are all distinct");
  bind("unique_inverse", "UniqueInverse", "values inverse_indices",
       {&Unique::values, &Unique::inverse},
       "The distinct elements of x in order, and the index of each element of x among them. NaNs "
       "are all distinct");
  def(m, "unique_values(x)", &unique_values,
      "The distinct elements of x in order: [n]. NaNs are all distinct");
  def(m, "nonzero(x)", &nonzero,
      "The indices of the nonzero elements: an int64 tensor [n] for each dim. ValueError for a "
      "tensor without dims");
  def(m, "searchsorted(x1, x2, *, side='left', sorter=None)",
      "The positions at which the elements of x2 would be inserted into the sorted x1 [n] (sorted "
      "by the indices `sorter` if given), before or after equal elements by `side`: int64, with "
      "the shape of x2. x1 [.., n] has a row for each row of x2 [.., m]",
      [](const Tensor& x1, const Tensor& x2, const std::string& side, const MaybeTensor& sorter) {
        const bool is_right = number_among("searchsorted", "side", side, {"left", "right"}) == 1;
        return searchsorted(x1, x2, is_right, sorter);
      });
  def(m, "bucketize(x, boundaries, right=False)", &bucketize, "searchsorted(boundaries, x)");
}

void bind_along_dim(py::module_& m) {
  bind_totals(m, "cumulative_sum", cumulative_sum,
              "Sums of the elements up to each along `axis`, which only a tensor of one dim can "
              "leave out; integers in int64 unless `dtype` is given. `include_initial`: a 0 first");
  bind_totals(
      m, "cumulative_prod", cumulative_prod,
      "Products of the elements up to each along `axis`, which only a tensor of one dim can leave "
      "out; integers in int64 unless `dtype` is given. `include_initial`: a 1 first");
  def(m, "logcumsumexp(x, axis)", &logcumsumexp,
      "log(sum(exp)) of all elements up to each along `axis`");
  bind_orders(m, "sort", sort,
              with_rule("sort",
                        "The elements sorted along `axis`, always stably; NaN is the "
                        "greatest value"));
  bind_orders(m, "argsort", argsort,
              "The indices (int64) along `axis` with which take_along_axis returns the result of "
              "`sort`; always stable");
  def(m, "take(x, indices, axis=None)",
      with_rule("take",
                "Slices `indices` [n] of `axis`, which is required unless x has one dim; negative "
                "indices count from the end. ValueError names an index out of bounds"),
      [](const Tensor& x, const Tensor& indices, const std::optional<int>& axis) {
        return take(x, indices, only_dim("take", x, axis));
      });
  def(m, "take_along_axis(x, indices, axis=-1)", &take_along_dim,
      with_rule(
          "take_along_dim",
          "Element indices[.., i, ..] of `axis` for each element of `indices`, which has as many "
          "dims as x; the other dims broadcast. ValueError names an index out of bounds"));
  bind_searches(m);
}

}  // namespace weft::python
