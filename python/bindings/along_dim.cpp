// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/along_dim.h"

#include "python/bindings/bindings.h"
#include "python/bindings/composed.h"
#include "weft/error.h"
#include "weft/ops/elementwise.h"

namespace weft::python {

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
      Released(), py::arg("x"), py::arg("axis") = py::none(), py::kw_only(),
      py::arg("dtype") = py::none(), py::arg("include_initial") = false, with_rule(name, text));
}

static void bind_orders(py::module_& m, const char* name,
                        Tensor (*function)(const Tensor&, int, bool), const char* text) {
  m.def(
      name,
      [function](const Tensor& x, int axis, bool descending, bool) {
        return function(x, axis, descending);
      },
      Released(), py::arg("x"), py::arg("axis") = -1, py::arg("descending") = false,
      py::arg("stable") = true, with_rule(name, text));
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
        py::arg("x"), text);
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
  m.def("unique_values", &unique_values, Released(), py::arg("x"),
        "The distinct elements of x in order: [n]. NaNs are all distinct");
}

static void bind_searches(py::module_& m) {
  bind_unique(m);
  m.def(
      "nonzero",
      [](const Tensor& x) { return py::tuple(py::cast(released([&] { return nonzero(x); }))); },
      py::arg("x"),
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
      Released(), py::arg("x1"), py::arg("x2"), py::kw_only(), py::arg("side") = "left",
      py::arg("sorter") = py::none(),
      "The positions at which the elements of x2 would be inserted into the sorted x1 [n] (sorted "
      "by the indices `sorter` if given), before or after equal elements by `side`: int64, with "
      "the shape of x2. x1 [.., n] has a row for each row of x2 [.., m]");
  m.def("bucketize", &bucketize, Released(), py::arg("x"), py::arg("boundaries"),
        py::arg("right") = false, "searchsorted(boundaries, x)");
}

void bind_along_dim(py::module_& m) {
  bind_totals(m, "cumulative_sum", cumulative_sum,
              "Sums of the elements up to each along `axis`, which only a tensor of one dim can "
              "leave out; integers in int64 unless `dtype` is given. `include_initial`: a 0 first");
  bind_totals(
      m, "cumulative_prod", cumulative_prod,
      "Products of the elements up to each along `axis`, which only a tensor of one dim can "
      "leave out; integers in int64 unless `dtype` is given. `include_initial`: a 1 first");
  m.def("logcumsumexp", &logcumsumexp, Released(), py::arg("x"), py::arg("axis"),
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
      Released(), py::arg("x"), py::arg("indices"), py::arg("axis") = py::none(),
      with_rule("take",
                "Slices `indices` [n] of `axis`, which is required unless x has one dim; negative "
                "indices count from the end. ValueError names an index out of bounds"));
  m.def("take_along_axis", &take_along_dim, Released(), py::arg("x"), py::arg("indices"),
        py::arg("axis") = -1,
        with_rule("take_along_dim",
                  "Element indices[.., i, ..] of `axis` for each element of `indices`, which has "
                  "as many dims as x; the other dims broadcast. ValueError names an index out of "
                  "bounds"));
  bind_searches(m);
}

}  // namespace weft::python
