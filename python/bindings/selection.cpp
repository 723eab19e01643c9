// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/selection.h"

#include <variant>

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "weft/error.h"
#include "weft/ops/indexing.h"
#include "weft/ops/scatter.h"
#include "weft/ops/shapes.h"

namespace weft::python {

/// Binds a median of all elements, and along a dim as a pair.
static void bind_median(py::module_& m, const char* name, const py::object& pair,
                        Tensor (*of_all)(const Tensor&),
                        ValuesAndIndices (*along_dim)(const Tensor&, int, bool), const char* doc) {
  m.def(
      name,
      [=](const Tensor& of, const std::optional<int>& along, bool keeps) -> py::object {
        if (!along) return py::cast(released([&] { return of_all(of); }));
        const ValuesAndIndices made = released([&] { return along_dim(of, *along, keeps); });
        return pair(made.values, made.indices);
      },
      py::arg("x"), py::arg("axis") = py::none(), py::arg("keepdims") = false, doc);
}

static void bind_medians(py::module_& m, const py::object& pair) {
  bind_median(m, "median", pair, &median, &median,
              "The lower of the two middle elements, NaN where there is one; along `axis` "
              "(values, indices)");
  bind_median(m, "nanmedian", pair, &nanmedian, &nanmedian,
              "The lower of the two middle elements that are not NaN; along `axis` (values, "
              "indices)");
}

/// Binds quantiles for one q, or several.
template <class Function>
static void bind_quantile(py::module_& m, const char* name, const Function& function,
                          const char* doc) {
  m.def(
      name,
      [function](const Tensor& x, const std::variant<double, std::vector<double>>& q,
                 const std::optional<int>& along, bool keepdims, const std::string& between) {
        return std::visit(
            [&](const auto& which) { return function(x, which, along, keepdims, between); }, q);
      },
      Released(), py::arg("x"), py::arg("q"), py::arg("axis") = py::none(),
      py::arg("keepdims") = false, py::kw_only(), py::arg("interpolation") = "linear", doc);
}

static void bind_quantiles(py::module_& m) {
  bind_quantile(
      m, "quantile", [](const auto&... arguments) { return quantile(arguments...); },
      "Quantile q in [0, 1] along `axis`, or of all elements; NaN where there is one. Several q "
      "make a first dim. `interpolation`: 'linear', 'lower', 'higher', 'nearest' or 'midpoint'");
  bind_quantile(
      m, "nanquantile", [](const auto&... arguments) { return nanquantile(arguments...); },
      "Quantile q in [0, 1] along `axis`, or of all elements, of those that are not NaN; see "
      "`quantile`");
}

void bind_selection(py::module_& m) {
  const py::object pair =
      py::module_::import("collections").attr("namedtuple")("ValuesAndIndices", "values indices");
  pair.attr("__module__") = "weft";
  pair.attr("__doc__") = "Elements, and where they lie along the dim (int64).";
  m.attr("ValuesAndIndices") = pair;
  // A function of Python's that returns the pair.
  const auto paired = [pair]<class... Args>(ValuesAndIndices (*function)(Args...)) {
    return [pair, function](std::decay_t<Args>... args) {
      const ValuesAndIndices made = released([&] { return function(args...); });
      return pair(made.values, made.indices);
    };
  };
  const auto x = py::arg("x");
  const auto axis = py::arg("axis") = -1;
  const auto keepdims = py::arg("keepdims") = false;
  m.def("_max_along", paired(&max_along), x, py::arg("axis"), keepdims);
  m.def("_min_along", paired(&min_along), x, py::arg("axis"), keepdims);
  m.def("_sort_along", paired(&sort_along), x, axis, py::arg("descending") = false);
  m.def(
      "topk",
      [pair](const Tensor& of, int64_t k, int along, bool largest, bool) {
        const ValuesAndIndices made = released([&] { return topk(of, k, along, largest); });
        return pair(made.values, made.indices);
      },
      x, py::arg("k"), axis, py::arg("largest") = true, py::arg("sorted") = true,
      "The k largest, or smallest, elements along `axis`, always in order: (values, indices)");
  m.def("cummax", paired(&cummax), x, py::arg("axis"),
        "The largest of all elements up to each along `axis`, and its last index; from a NaN on, "
        "NaN: (values, indices)");
  m.def("cummin", paired(&cummin), x, py::arg("axis"),
        "The smallest of all elements up to each along `axis`, and its last index; from a NaN on, "
        "NaN: (values, indices)");
  m.def("kthvalue", paired(&kthvalue), x, py::arg("k"), axis, keepdims,
        "The k-th smallest element along `axis`, counted from 1: (values, indices)");
  bind_medians(m, pair);
  bind_quantiles(m);
  m.def("gather", &gather, Released(), x, py::arg("axis"), py::arg("index"),
        "Element index[.., i, ..] along `axis` for each element of `index`, whose other dims may "
        "be smaller than those of x");
  m.def("masked_select", &masked_select, Released(), x, py::arg("mask"),
        "The elements where `mask` (bool) holds, in row-major order: [n]");
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
      Released(), x, py::arg("indices"), py::arg("values"), py::arg("accumulate") = false,
      "x with the elements at `indices`, a tensor or None for each dim, replaced by `values`, or "
      "added");
  m.def("isin", &isin, Released(), py::arg("elements"), py::arg("test_elements"),
        "Whether each element is one of test_elements: bool");
  m.def(
      "index_add",
      [](const Tensor& of, int along, const Tensor& index, const Tensor& source,
         const Operand& alpha) {
        return released([&] { return index_add(of, along, index, source, alpha.number); });
      },
      x, py::arg("dim"), py::arg("index"), py::arg("source"), py::kw_only(), py::arg("alpha") = 1,
      "x with slice i of alpha * source added to slice index[i] of `dim`");
  m.def("index_copy", &index_copy, Released(), x, py::arg("dim"), py::arg("index"),
        py::arg("source"), "x with slice index[i] of `dim` replaced by slice i of `source`");
  m.def("index_fill", &index_fill, Released(), x, py::arg("dim"), py::arg("index"),
        py::arg("value"), "x with the slices `index` of `dim` filled with `value`");
  m.def("scatter_add", &scatter_add, Released(), x, py::arg("dim"), py::arg("index"),
        py::arg("src"), "x with src[.., i, ..] added to element index[.., i, ..] along `dim`");
  m.def("scatter_reduce", &scatter_reduce, Released(), x, py::arg("dim"), py::arg("index"),
        py::arg("src"), py::arg("reduce"), py::kw_only(), py::arg("include_self") = true,
        "x with element index[.., i, ..] along `dim` combined with src[.., i, ..]: the sum, prod, "
        "mean, amax or amin of them; of x too if include_self");
  m.def("index_reduce", &index_reduce, Released(), x, py::arg("dim"), py::arg("index"),
        py::arg("source"), py::arg("reduce"), py::kw_only(), py::arg("include_self") = true,
        "The same for slices of `dim`, as index_add");
  m.def("_scatter_along", &scatter_along_dim, Released(), x, py::arg("dim"), py::arg("index"),
        py::arg("src"));
  m.def("select_scatter", &select_scatter, Released(), x, py::arg("src"), py::arg("dim"),
        py::arg("index"), "x with element `index` of `dim` replaced by src");
  m.def("_slice_scatter", &slice_scatter, Released(), x, py::arg("src"), py::arg("dim"),
        py::arg("start"), py::arg("stop"), py::arg("step"));
  m.def("_constant_pad", &constant_pad, Released(), x, py::arg("pad"), py::arg("value"));
  m.def("argwhere", &argwhere, Released(), x, "The indices of the nonzero elements: [n, dims]");
  m.def("one_hot", &one_hot, Released(), x, py::arg("num_classes") = -1,
        "x [...] as rows [..., classes] that are 1 at the element's number, else 0: int64");
}

}  // namespace weft::python
