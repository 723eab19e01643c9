// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/reductions.h"

#include "python/bindings/bindings.h"
#include "python/bindings/dims.h"
#include "python/bindings/lock.h"
#include "python/bindings/rule_text.h"
#include "weft/ops/shapes.h"

namespace weft::python {

namespace {

using Reduction = Tensor (*)(const Tensor&, const std::vector<int>&, bool);

struct OverDims {
  const char* name;
  Reduction function;
  const char* op;
  const char* text;
};

constexpr OverDims kOverDims[] = {
    {"sum", sum, "sum", "The sum over `axis` (all dims unless given); integers sum up in int64"},
    {"mean", mean, "mean", "The mean over `axis` (all dims unless given); of integers in float32"},
    {"max", max, "max",
     "The largest element over `axis` (all dims unless given); NaN where one is"},
    {"min", min, "min",
     "The smallest element over `axis` (all dims unless given); NaN where one is"},
    {"prod", prod, "prod", "The product over `axis` (all dims unless given); integers in int64"},
    {"all", all, "all", "Whether all elements over `axis` are not zero: bool; true of none"},
    {"any", any, "any", "Whether any element over `axis` is not zero: bool; false of none"},
    {"sum_squares", sum_squares, "sum_squares", "The sum of squares over `axis`, as float32"},
    {"norm", norm, "sum_squares", "sqrt of the sum of squares over `axis`"},
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
      py::arg("x"), py::arg("axis") = py::none(), py::arg("keepdims") = false, with_rule(op, text));
}

}  // namespace

void bind_reductions(py::module_& m) {
  for (const OverDims& f : kOverDims) {
    m.def(
        f.name,
        [function = f.function](const Tensor& x, const py::object& axis, bool keepdims) {
          const std::vector<int> dims = dims_of(axis);
          return released([&] { return function(x, dims, keepdims); });
        },
        py::arg("x"), py::arg("axis") = py::none(), py::arg("keepdims") = false,
        with_rule(f.op, f.text));
  }
  bind_over_one(m, "argmax", &argmax, "argmax",
                "The index (int64, of the whole tensor) of the first largest element along `axis`");
  bind_over_one(m, "argmin", &argmin, "argmin",
                "The index (int64, of the whole tensor) of the first least element along `axis`");
  bind_over_one(m, "logsumexp", &logsumexp, "logsumexp", "log of the sum of exp along `axis`");
}

}  // namespace weft::python
