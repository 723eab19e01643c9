// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/shapes.h"

#include <algorithm>
#include <functional>

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "weft/error.h"
#include "weft/ops/elementwise.h"

namespace weft::python {

Tensor reshaped(const Tensor& x, Shape shape) {
  int missing = -1;
  int64_t known = 1;
  for (int d = 0; d < shape.ndim(); ++d) {
    if (shape[d] != -1) {
      known *= shape[d];
    } else if (missing < 0) {
      missing = d;
    } else {
      fail("reshape: shape is ", shape, ", expected at most one -1");
    }
  }
  if (missing >= 0) {
    if (known <= 0 || x.numel() % known != 0) {
      fail("reshape: shape is ", shape, ", expected one of ", x.numel(), " elements, those of ",
           x.shape());
    }
    shape[missing] = x.numel() / known;
  }
  return reshape(x, shape);
}

/// Each of the dims, of size 1, left out.
static Tensor squeezed(const Tensor& x, std::vector<int> dims) {
  for (int& dim : dims) dim = normalized_dim("squeeze", dim, x.ndim());
  std::sort(dims.begin(), dims.end(), std::greater<>());
  Tensor result = x;
  for (const int dim : dims) result = squeeze(result, dim);
  return result;
}

/// Every dim of size 1, as PyTorch does without a dim.
static std::vector<int> ones_of(const Tensor& x) {
  std::vector<int> dims;
  for (int d = 0; d < x.ndim(); ++d) {
    if (x.shape()[d] == 1) dims.push_back(d);
  }
  return dims;
}

void bind_shapes(py::module_& m) {
  m.def(
      "reshape",
      [](const Tensor& x, const Shape& shape, const std::optional<bool>& copy) {
        const Tensor result = reshaped(x, shape);
        if (!copy || result.storage() == x.storage())
          return copy.value_or(false) ? clone(result) : result;
        if (!*copy)
          fail("reshape: shape is ", shape, ", expected one that a view of the tensor ", x.shape(),
               " can have, because copy is False");
        return result;
      },
      Released(), py::arg("x"), py::arg("shape"), py::kw_only(), py::arg("copy") = py::none(),
      with_rule("reshape",
                "The same elements in row-major order as `shape`, of whose sizes one may be -1; a "
                "view where memory allows. copy=True always copies; copy=False never, but raises "
                "ValueError"));
  m.def("transpose", &transpose, Released(), py::arg("x"), py::arg("dim0"), py::arg("dim1"),
        with_rule("permute", "With two dims exchanged; a view"));
  m.def(
      "permute_dims",
      [](const Tensor& x, const std::variant<std::vector<int>, int>& axes) {
        const int* const one = std::get_if<int>(&axes);
        return permute(x, one ? std::vector<int>{*one} : std::get<0>(axes));
      },
      Released(), py::arg("x"), py::arg("axes"),
      with_rule("permute", "Dim i of the result is dim axes[i] of x; a view"));
  m.def("slice", &slice, Released(), py::arg("x"), py::arg("dim"), py::arg("start"),
        py::arg("stop"), py::arg("step") = 1,
        with_rule("slice",
                  "Elements start, start + step, ... below stop of `dim`; negative start "
                  "and stop count from the end"));
  m.def(
      "concat",
      [](const Tensors& tensors, const py::object& axis) {
        const bool flat = axis.is_none();
        const int at = flat ? 0 : one_dim_of("concat", axis);
        return released([&] {
          if (!flat) return cat(tensors, at);
          Tensors rows;
          for (const Tensor& tensor : tensors) rows.push_back(reshape(tensor, {tensor.numel()}));
          return cat(rows, 0);
        });
      },
      py::arg("arrays"), py::arg("axis") = 0,
      with_rule("cat",
                "One after the other along `axis`; the other dims are equal. None: "
                "flattened before"));
  m.def("cat", &cat, Released(), py::arg("tensors"), py::arg("dim") = 0,
        with_rule("cat", "One after the other along `dim`; the other dims are equal"));
  m.def("pad", &pad, Released(), py::arg("x"), py::arg("dim"), py::arg("before"), py::arg("after"),
        with_rule("slice", "`before` and `after` zeros more along `dim`"));
  m.def("broadcast_to", &expand, Released(), py::arg("x"), py::arg("shape"),
        with_rule("expand", "Dims of size 1, and new leading ones, repeated to `shape`; no copy"));
  m.def(
      "squeeze",
      [](const Tensor& x, const py::object& axis) {
        const std::vector<int> dims = axis.is_none() ? ones_of(x) : named_dims(axis);
        return released([&] { return squeezed(x, dims); });
      },
      py::arg("x"), py::arg("axis") = py::none(),
      with_rule("reshape", "Without the dims of size 1 that `axis` names, or all of them; a view"));
  m.def(
      "flip",
      [](const Tensor& x, const py::object& axis) {
        if (is_no_dim(axis)) return released([&] { return clone(x); });
        const std::vector<int> dims = dims_of(axis);
        return released([&] { return flip(x, dims); });
      },
      py::arg("x"), py::arg("axis") = py::none(),
      with_rule("flip", "The elements of `axis` (all dims unless given) in reverse order"));
  m.def("tril", &tril, Released(), py::arg("x"), py::arg("k") = 0,
        with_rule("triangle", "x with zeros above diagonal `k` of its last two dims"));
  m.def("triu", &triu, Released(), py::arg("x"), py::arg("k") = 0,
        with_rule("triangle", "x with zeros below diagonal `k` of its last two dims"));
  m.def("unsqueeze", &unsqueeze, Released(), py::arg("x"), py::arg("dim"),
        with_rule("reshape", "With a new dim of size 1 before dim `dim`; a view"));
}

}  // namespace weft::python
