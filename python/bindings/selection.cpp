// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/selection.h"

#include <variant>

#include "python/bindings/bindings.h"
#include "python/bindings/composed.h"
#include "weft/error.h"
#include "weft/ops/along_dim.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/indexing.h"
#include "weft/ops/scatter.h"
#include "weft/ops/shapes.h"

namespace weft::python {

/// Binds a median of all elements, and along a dim as a pair.
static void bind_median(py::module_& m, const char* name, Tensor (*of_all)(const Tensor&),
                        ValuesAndIndices (*along_dim)(const Tensor&, int, bool), const char* text) {
  m.def(
      name,
      [=](const Tensor& of, const std::optional<int>& along, bool keeps) -> py::object {
        if (!along) return py::cast(released([&] { return of_all(of); }));
        return for_python(released([&] { return along_dim(of, *along, keeps); }));
      },
      "x"_a, "axis"_a = py::none(), "keepdims"_a = false, text);
}

/// Binds quantiles for one q, or several.
template <class Function>
static void bind_quantile(py::module_& m, const char* name, const Function& function,
                          const char* text) {
  m.def(
      name,
      [function](const Tensor& x, const std::variant<double, std::vector<double>>& q,
                 const std::optional<int>& along, bool keepdims, const std::string& between) {
        return std::visit(
            [&](const auto& which) { return function(x, which, along, keepdims, between); }, q);
      },
      Released(), "x"_a, "q"_a, "axis"_a = py::none(), "keepdims"_a = false, py::kw_only(),
      "interpolation"_a = "linear", text);
}

static void bind_order_statistics(py::module_& m) {
  bind_median(m, "median", &median, &median,
              "The lower of the two middle elements, NaN where there is one; along `axis` "
              "(values, indices)");
  bind_median(m, "nanmedian", &nanmedian, &nanmedian,
              "The lower of the two middle elements that are not NaN; along `axis` (values, "
              "indices)");
  bind_quantile(
      m, "quantile", [](const auto&... arguments) { return quantile(arguments...); },
      "Quantile q in [0, 1] along `axis`, or of all elements; NaN where there is one. Several q "
      "make a first dim. `interpolation`: 'linear', 'lower', 'higher', 'nearest' or 'midpoint'");
  bind_quantile(
      m, "nanquantile", [](const auto&... arguments) { return nanquantile(arguments...); },
      "Quantile q in [0, 1] along `axis`, or of all elements, of those that are not NaN; see "
      "`quantile`");
}

static void bind_orders(py::module_& m) {
  add_named_tuple(m, "ValuesAndIndices", "values indices",
                  "Elements, and where they lie along the dim (int64).");
  const auto axis = "axis"_a = -1;
  const auto keepdims = "keepdims"_a = false;
  bind_function(m, "_max_along", &max_along, "", "x"_a, "axis"_a, keepdims);
  bind_function(m, "_min_along", &min_along, "", "x"_a, "axis"_a, keepdims);
  bind_function(m, "_sort_along", &sort_along, "", "x"_a, axis, "descending"_a = false);
  bind_function(
      m, "topk",
      +[](const Tensor& of, int64_t k, int along, bool largest, bool) {
        return topk(of, k, along, largest);
      },
      "The k largest, or smallest, elements along `axis`, always in order: (values, indices)",
      "x"_a, "k"_a, axis, "largest"_a = true, "sorted"_a = true);
  bind_function(m, "cummax", &cummax,
                "The largest of all elements up to each along `axis`, and its last index; from a "
                "NaN on, NaN: (values, indices)",
                "x"_a, "axis"_a);
  bind_function(m, "cummin", &cummin,
                "The smallest of all elements up to each along `axis`, and its last index; from a "
                "NaN on, NaN: (values, indices)",
                "x"_a, "axis"_a);
  bind_function(m, "kthvalue", &kthvalue,
                "The k-th smallest element along `axis`, counted from 1: (values, indices)", "x"_a,
                "k"_a, axis, keepdims);
  bind_order_statistics(m);
}

static void bind_scatters(py::module_& m) {
  m.def(
      "index_put",
      [](const Tensor& of, const std::vector<std::optional<Tensor>>& indices, const Operand& values,
         bool accumulate) {
        std::vector<DimIndex> all;
        int along = 0;
        for (const auto& one : indices) {
          if (!one || one->dtype() != DType::boolean) {
            if (one) all.push_back({along, *one});
            ++along;
            continue;
          }
          for (const DimIndex& places : indices_of_mask(*one, along)) all.push_back(places);
          along += one->ndim();
        }
        return index_put(of, all, values, accumulate);
      },
      Released(), "x"_a, "indices"_a, "values"_a, "accumulate"_a = false,
      "x with the elements at `indices`, a tensor or None for each dim, replaced by `values`, or "
      "added");
  bind_function(m, "index_add", &index_add,
                "x with slice i of alpha * source added to slice index[i] of `dim`", "x"_a, "dim"_a,
                "index"_a, "source"_a, py::kw_only(), "alpha"_a = Number(1));
  bind_function(m, "index_copy", &index_copy,
                "x with slice index[i] of `dim` replaced by slice i of `source`", "x"_a, "dim"_a,
                "index"_a, "source"_a);
  bind_function(m, "index_fill", &index_fill,
                "x with the slices `index` of `dim` filled with `value`", "x"_a, "dim"_a, "index"_a,
                "value"_a);
  bind_function(m, "scatter_add", &scatter_add,
                "x with src[.., i, ..] added to element index[.., i, ..] along `dim`", "x"_a,
                "dim"_a, "index"_a, "src"_a);
  const auto include_self = "include_self"_a = true;
  bind_function(m, "scatter_reduce", &scatter_reduce,
                "x with element index[.., i, ..] along `dim` combined with src[.., i, ..]: the "
                "sum, prod, mean, amax or amin of them; of x too if include_self",
                "x"_a, "dim"_a, "index"_a, "src"_a, "reduce"_a, py::kw_only(), include_self);
  bind_function(m, "index_reduce", &index_reduce, "The same for slices of `dim`, as index_add",
                "x"_a, "dim"_a, "index"_a, "source"_a, "reduce"_a, py::kw_only(), include_self);
  bind_function(m, "_scatter_along", &scatter_along_dim, "", "x"_a, "dim"_a, "index"_a, "src"_a);
  bind_function(m, "select_scatter", &select_scatter,
                "x with element `index` of `dim` replaced by src", "x"_a, "src"_a, "dim"_a,
                "index"_a);
  bind_function(m, "_slice_scatter", &slice_scatter, "", "x"_a, "src"_a, "dim"_a, "start"_a,
                "stop"_a, "step"_a);
}

void bind_selection(py::module_& m) {
  bind_orders(m);
  bind_scatters(m);
  bind_function(
      m, "gather", &gather,
      "Element index[.., i, ..] along `axis` for each element of `index`, whose other dims may be "
      "smaller than those of x",
      "x"_a, "axis"_a, "index"_a);
  bind_function(m, "masked_select", &masked_select,
                "The elements where `mask` (bool) holds, in row-major order: [n]", "x"_a, "mask"_a);
  bind_function(m, "isin", &isin, "Whether each element is one of test_elements: bool",
                "elements"_a, "test_elements"_a);
  bind_function(m, "_constant_pad", &constant_pad, "", "x"_a, "pad"_a, "value"_a);
  bind_function(m, "argwhere", &argwhere, "The indices of the nonzero elements: [n, dims]", "x"_a);
  bind_function(m, "one_hot", &one_hot,
                "x [...] as rows [..., classes] that are 1 at the element's number, else 0: int64",
                "x"_a, "num_classes"_a = -1);
}

/// The dim given; the only one of a tensor of one dim.
static int only_dim(const char* what, const Tensor& x, const std::optional<int>& axis) {
  if (!axis && x.ndim() != 1)
    fail(what, ": axis is missing, expected one of the ", x.ndim(), " of ", x.shape());
  return axis.value_or(0);
}

static void bind_totals(py::module_& m, const char* name,
                        Tensor (*function)(const Tensor&, int, bool), const char* text) {
  m.def(
      name,
      [name, function](const Tensor& x, const std::optional<int>& axis,
                       const std::optional<DType>& dtype, bool include_initial) {
        const int dim = only_dim(name, x, axis);
        if (!dtype) return function(x, dim, include_initial);
        return cast(function(cast(x, *dtype), dim, include_initial), *dtype);
      },
      Released(), "x"_a, "axis"_a = py::none(), py::kw_only(), "dtype"_a = py::none(),
      "include_initial"_a = false, with_rule(name, text));
}

static void bind_orders(py::module_& m, const char* name,
                        Tensor (*function)(const Tensor&, int, bool), const char* text) {
  m.def(
      name,
      [function](const Tensor& x, int axis, bool descending, bool) {
        return function(x, axis, descending);
      },
      Released(), "x"_a, "axis"_a = -1, "descending"_a = false, "stable"_a = true,
      with_rule(name, text));
}

static void bind_unique(py::module_& m) {
  const auto bind = [&m](const char* function, const char* tuple, const char* fields,
                         const std::vector<Tensor Unique::*>& members, const char* text) {
    const py::object type =
        add_named_tuple(m, tuple, fields, concat("The result of `", function, "`.").c_str());
    m.def(
        function,
        [type, members](const Tensor& x) {
          const Unique found = released([&] { return unique(x); });
          py::list chosen;
          for (const auto member : members) chosen.append(found.*member);
          return type(*chosen);
        },
        "x"_a, text);
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
  m.def("unique_values", &unique_values, Released(), "x"_a,
        "The distinct elements of x in order: [n]. NaNs are all distinct");
}

static void bind_searches(py::module_& m) {
  bind_unique(m);
  m.def(
      "nonzero",
      [](const Tensor& x) { return py::tuple(py::cast(released([&] { return nonzero(x); }))); },
      "x"_a,
      "The indices of the nonzero elements: an int64 tensor [n] for each dim. ValueError for a "
      "tensor without dims");
  m.def(
      "searchsorted",
      [](const Tensor& x1, const Tensor& x2, const std::string& side,
         const std::optional<Tensor>& sorter) {
        if (side != "left" && side != "right") {
          fail("searchsorted: side is '", side, "', expected 'left' or 'right'");
        }
        return searchsorted(x1, x2, side == "right", sorter.value_or(Tensor()));
      },
      Released(), "x1"_a, "x2"_a, py::kw_only(), "side"_a = "left", "sorter"_a = py::none(),
      "The positions at which the elements of x2 would be inserted into the sorted x1 [n] (sorted "
      "by the indices `sorter` if given), before or after equal elements by `side`: int64, with "
      "the shape of x2. x1 [.., n] has a row for each row of x2 [.., m]");
  m.def("bucketize", &bucketize, Released(), "x"_a, "boundaries"_a, "right"_a = false,
        "searchsorted(boundaries, x)");
}

void bind_along_dim(py::module_& m) {
  bind_totals(m, "cumulative_sum", cumulative_sum,
              "Sums of the elements up to each along `axis`, which only a tensor of one dim can "
              "leave out; integers in int64 unless `dtype` is given. `include_initial`: a 0 first");
  bind_totals(
      m, "cumulative_prod", cumulative_prod,
      "Products of the elements up to each along `axis`, which only a tensor of one dim can "
      "leave out; integers in int64 unless `dtype` is given. `include_initial`: a 1 first");
  m.def("logcumsumexp", &logcumsumexp, Released(), "x"_a, "axis"_a,
        "log(sum(exp)) of all elements up to each along `axis`");
  bind_orders(m, "sort", sort,
              "The elements sorted along `axis`, always stably; NaN is the greatest value");
  bind_orders(m, "argsort", argsort,
              "The indices (int64) along `axis` with which take_along_axis returns the result of "
              "`sort`; always stable");
  m.def(
      "take",
      [](const Tensor& x, const Tensor& indices, const std::optional<int>& axis) {
        return take(x, indices, only_dim("take", x, axis));
      },
      Released(), "x"_a, "indices"_a, "axis"_a = py::none(),
      with_rule("take",
                "Slices `indices` [n] of `axis`, which is required unless x has one dim; negative "
                "indices count from the end. ValueError names an index out of bounds"));
  m.def("take_along_axis", &take_along_dim, Released(), "x"_a, "indices"_a, "axis"_a = -1,
        with_rule("take_along_dim",
                  "Element indices[.., i, ..] of `axis` for each element of `indices`, which has "
                  "as many dims as x; the other dims broadcast. ValueError names an index out of "
                  "bounds"));
  bind_searches(m);
}

}  // namespace weft::python
