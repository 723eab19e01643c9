// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/parts.h"

#include "python/bindings/bindings.h"
#include "python/bindings/composed.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/shapes.h"

namespace weft::python {

/// A function of several tensors that takes them as a sequence.
using OfTensors = Tensor (*)(const Tensors&);

static void bind_splits(py::module_& m) {
  const auto x = py::arg("x");
  const auto dim = py::arg("dim") = 0;
  bind_function(
      m, "chunk", &chunk,
      "At most `chunks` parts along `dim`, of ceil(size / chunks) elements, the last of fewer", x,
      py::arg("chunks"), dim);
  bind_function(m, "split", py::overload_cast<const Tensor&, int64_t, int>(&split),
                "Parts along `dim` of that size, the last of fewer; or of these sizes", x,
                py::arg("split_size_or_sections"), dim);
  bind_function(m, "split",
                py::overload_cast<const Tensor&, const std::vector<int64_t>&, int>(&split), "", x,
                py::arg("split_size_or_sections"), dim);
  bind_function(
      m, "tensor_split", py::overload_cast<const Tensor&, int64_t, int>(&tensor_split),
      "Parts along `dim` whose sizes differ by at most 1; or that end before these indices", x,
      py::arg("indices_or_sections"), dim);
  bind_function(m, "tensor_split",
                py::overload_cast<const Tensor&, const std::vector<int64_t>&, int>(&tensor_split),
                "", x, py::arg("indices_or_sections"), dim);
  const auto sections = py::arg("sections");
  bind_function(m, "hsplit", &hsplit, "Equal parts along dim 1, of a vector along 0", x, sections);
  bind_function(m, "vsplit", &vsplit, "Equal parts along dim 0", x, sections);
  bind_function(m, "dsplit", &dsplit, "Equal parts along dim 2", x, sections);
  bind_function(m, "unbind", &unstack, "The slices of `dim`, which do not have that dim", x, dim);
}

static void bind_places(py::module_& m) {
  const auto x = py::arg("x");
  bind_function(m, "narrow", &narrow, "`length` elements along `dim` from `start` on", x,
                py::arg("dim"), py::arg("start"), py::arg("length"));
  bind_function(m, "select", &select, "Element `index` of `dim`, which the result lacks", x,
                py::arg("dim"), py::arg("index"));
  bind_function(m, "index_select", &index_select, "The slices of `dim` at `index` [n]", x,
                py::arg("dim"), py::arg("index"));
  bind_function(m, "unflatten", &unflatten, "Dim `dim` as dims of `sizes`, of which one may be -1",
                x, py::arg("dim"), py::arg("sizes"));
  bind_function(m, "unfold", &unfold,
                "Windows of `size` elements along a dim, `step` apart, in a new last dim", x,
                py::arg("dimension"), py::arg("size"), py::arg("step"));
  bind_function(m, "rot90", &rot90,
                "Turns the plane of two dims by 90 degrees k times, from the first to the second",
                x, py::arg("k") = 1, py::arg("dims") = std::vector<int>{0, 1});
  bind_function(m, "fliplr", &fliplr, "Dim 1 reversed", x);
  bind_function(m, "flipud", &flipud, "Dim 0 reversed", x);
  bind_function(m, "diag_embed", &diag_embed,
                "The last dim as diagonal `offset` of two dims of a tensor of zeros", x,
                py::arg("offset") = 0, py::arg("dim1") = -2, py::arg("dim2") = -1);
  bind_function(m, "diag", &diag,
                "A vector as a diagonal of a matrix, or a diagonal of a matrix as a vector", x,
                py::arg("diagonal") = 0);
  bind_function(m, "diagflat", &diagflat, "All elements as a diagonal of a matrix", x,
                py::arg("offset") = 0);
  bind_function(
      m, "contiguous", &contiguous,
      "x itself if its elements are dense in memory, in row-major order; otherwise a copy", x);
  bind_function(m, "masked_fill", &masked_fill,
                "`value`, in the dtype of x, where `mask` (bool) holds, and x elsewhere", x,
                py::arg("mask"), py::arg("value"));
}

static void bind_joins(py::module_& m) {
  const auto join = [&](const char* name, OfTensors function, const char* text) {
    m.def(name, function, Released(), py::arg("tensors"), text);
  };
  join("hstack", &hstack, "Joins along dim 1, vectors along dim 0");
  join("vstack", &vstack, "Joins along dim 0; vectors are rows");
  join("dstack", &dstack, "Joins along dim 2");
  join("column_stack", &column_stack, "Joins along dim 1; vectors are columns");
  const auto joins_all = [&](const char* name, OfTensors function, const char* text) {
    m.def(
        name,
        [name, function](const py::args& given) {
          const Tensors tensors = tensors_in(name, given);
          return released([&] { return function(tensors); });
        },
        text);
  };
  joins_all("block_diag", &block_diag, "Matrices along the diagonal of one");
  joins_all("cartesian_prod", &cartesian_prod,
            "All combinations of an element of each: a row each");
  bind_function(m, "atleast_1d", &atleast_1d, "x with at least 1 dim", py::arg("x"));
  bind_function(m, "atleast_2d", &atleast_2d, "x with at least 2 dims", py::arg("x"));
  bind_function(m, "atleast_3d", &atleast_3d, "x with at least 3 dims", py::arg("x"));
}

void bind_parts(py::module_& m) {
  bind_splits(m);
  bind_places(m);
  bind_joins(m);
}

}  // namespace weft::python
