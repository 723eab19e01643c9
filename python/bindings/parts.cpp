// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/parts.h"

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/shapes.h"

namespace weft::python {

/// A function that returns tensors, for Python, where it returns a tuple.
template <class... Args>
static auto as_tuple(Tensors (*function)(Args...)) {
  return [function](std::decay_t<Args>... args) {
    return py::tuple(py::cast(released([&] { return function(args...); })));
  };
}

/// A function of several tensors that takes them as a sequence.
using OfTensors = Tensor (*)(const Tensors&);

static void bind_splits(py::module_& m) {
  const auto x = py::arg("x");
  const auto dim = py::arg("dim") = 0;
  m.def("chunk", as_tuple(&chunk), x, py::arg("chunks"), dim,
        "At most `chunks` parts along `dim`, of ceil(size / chunks) elements, the last of fewer");
  m.def("split", as_tuple<const Tensor&, int64_t, int>(&split), x,
        py::arg("split_size_or_sections"), dim,
        "Parts along `dim` of that size, the last of fewer; or of these sizes");
  m.def("split", as_tuple<const Tensor&, const std::vector<int64_t>&, int>(&split), x,
        py::arg("split_size_or_sections"), dim);
  m.def("tensor_split", as_tuple<const Tensor&, int64_t, int>(&tensor_split), x,
        py::arg("indices_or_sections"), dim,
        "Parts along `dim` whose sizes differ by at most 1; or that end before these indices");
  m.def("tensor_split", as_tuple<const Tensor&, const std::vector<int64_t>&, int>(&tensor_split), x,
        py::arg("indices_or_sections"), dim);
  const auto sections = py::arg("sections");
  m.def("hsplit", as_tuple(&hsplit), x, sections, "Equal parts along dim 1, of a vector along 0");
  m.def("vsplit", as_tuple(&vsplit), x, sections, "Equal parts along dim 0");
  m.def("dsplit", as_tuple(&dsplit), x, sections, "Equal parts along dim 2");
  m.def("unbind", as_tuple(&unstack), x, dim, "The slices of `dim`, which do not have that dim");
}

static void bind_places(py::module_& m) {
  const auto x = py::arg("x");
  m.def("narrow", &narrow, Released(), x, py::arg("dim"), py::arg("start"), py::arg("length"),
        "`length` elements along `dim` from `start` on");
  m.def("select", &select, Released(), x, py::arg("dim"), py::arg("index"),
        "Element `index` of `dim`, which the result lacks");
  m.def("index_select", &index_select, Released(), x, py::arg("dim"), py::arg("index"),
        "The slices of `dim` at `index` [n]");
  m.def("unflatten", &unflatten, Released(), x, py::arg("dim"), py::arg("sizes"),
        "Dim `dim` as dims of `sizes`, of which one may be -1");
  m.def("unfold", &unfold, Released(), x, py::arg("dimension"), py::arg("size"), py::arg("step"),
        "Windows of `size` elements along a dim, `step` apart, in a new last dim");
  m.def("rot90", &rot90, Released(), x, py::arg("k") = 1, py::arg("dims") = std::vector<int>{0, 1},
        "Turns the plane of two dims by 90 degrees k times, from the first to the second");
  m.def("fliplr", &fliplr, Released(), x, "Dim 1 reversed");
  m.def("flipud", &flipud, Released(), x, "Dim 0 reversed");
  m.def("diag_embed", &diag_embed, Released(), x, py::arg("offset") = 0, py::arg("dim1") = -2,
        py::arg("dim2") = -1, "The last dim as diagonal `offset` of two dims of a tensor of zeros");
  m.def("diag", &diag, Released(), x, py::arg("diagonal") = 0,
        "A vector as a diagonal of a matrix, or a diagonal of a matrix as a vector");
  m.def("diagflat", &diagflat, Released(), x, py::arg("offset") = 0,
        "All elements as a diagonal of a matrix");
  m.def("contiguous", &contiguous, Released(), x,
        "x itself if its elements are dense in memory, in row-major order; otherwise a copy");
  m.def("masked_fill", &masked_fill, Released(), x, py::arg("mask"), py::arg("value"),
        "`value`, in the dtype of x, where `mask` (bool) holds, and x elsewhere");
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
  m.def("atleast_1d", &atleast_1d, Released(), py::arg("x"), "x with at least 1 dim");
  m.def("atleast_2d", &atleast_2d, Released(), py::arg("x"), "x with at least 2 dims");
  m.def("atleast_3d", &atleast_3d, Released(), py::arg("x"), "x with at least 3 dims");
}

void bind_parts(py::module_& m) {
  bind_splits(m);
  bind_places(m);
  bind_joins(m);
}

}  // namespace weft::python
