// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/shapes.h"

#include <algorithm>
#include <functional>

#include "python/bindings/bindings.h"
#include "python/bindings/composed.h"
#include "python/bindings/lock.h"
#include "weft/error.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/parts.h"

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
      Released(), "x"_a, "shape"_a, py::kw_only(), "copy"_a = py::none(),
      with_rule("reshape",
                "The same elements in row-major order as `shape`, of whose sizes one may be -1; a "
                "view where memory allows. copy=True always copies; copy=False never, but raises "
                "ValueError"));
  m.def("transpose", &transpose, Released(), "x"_a, "dim0"_a, "dim1"_a,
        with_rule("permute", "With two dims exchanged; a view"));
  m.def(
      "permute_dims",
      [](const Tensor& x, const std::variant<std::vector<int>, int>& axes) {
        const int* const one = std::get_if<int>(&axes);
        return permute(x, one ? std::vector<int>{*one} : std::get<0>(axes));
      },
      Released(), "x"_a, "axes"_a,
      with_rule("permute", "Dim i of the result is dim axes[i] of x; a view"));
  m.def("slice", &slice, Released(), "x"_a, "dim"_a, "start"_a, "stop"_a, "step"_a = 1,
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
      "arrays"_a, "axis"_a = 0,
      with_rule("cat",
                "One after the other along `axis`; the other dims are equal. None: "
                "flattened before"));
  m.def("cat", &cat, Released(), "tensors"_a, "dim"_a = 0,
        with_rule("cat", "One after the other along `dim`; the other dims are equal"));
  m.def("pad", &pad, Released(), "x"_a, "dim"_a, "before"_a, "after"_a,
        with_rule("slice", "`before` and `after` zeros more along `dim`"));
  m.def("broadcast_to", &expand, Released(), "x"_a, "shape"_a,
        with_rule("expand", "Dims of size 1, and new leading ones, repeated to `shape`; no copy"));
  m.def(
      "squeeze",
      [](const Tensor& x, const py::object& axis) {
        const std::vector<int> dims = axis.is_none() ? ones_of(x) : named_dims(axis);
        return released([&] { return squeezed(x, dims); });
      },
      "x"_a, "axis"_a = py::none(),
      with_rule("reshape", "Without the dims of size 1 that `axis` names, or all of them; a view"));
  m.def(
      "flip",
      [](const Tensor& x, const py::object& axis) {
        if (is_no_dim(axis)) return released([&] { return clone(x); });
        const std::vector<int> dims = dims_of(axis);
        return released([&] { return flip(x, dims); });
      },
      "x"_a, "axis"_a = py::none(),
      with_rule("flip", "The elements of `axis` (all dims unless given) in reverse order"));
  m.def("tril", &tril, Released(), "x"_a, "k"_a = 0,
        with_rule("triangle", "x with zeros above diagonal `k` of its last two dims"));
  m.def("triu", &triu, Released(), "x"_a, "k"_a = 0,
        with_rule("triangle", "x with zeros below diagonal `k` of its last two dims"));
  m.def("unsqueeze", &unsqueeze, Released(), "x"_a, "dim"_a,
        with_rule("reshape", "With a new dim of size 1 before dim `dim`; a view"));
}

/// A function of several tensors that takes them as a sequence.
using OfTensors = Tensor (*)(const Tensors&);

static void bind_splits(py::module_& m) {
  const auto dim = "dim"_a = 0;
  bind_function(
      m, "chunk", &chunk,
      "At most `chunks` parts along `dim`, of ceil(size / chunks) elements, the last of fewer",
      "x"_a, "chunks"_a, dim);
  bind_function(m, "split", py::overload_cast<const Tensor&, int64_t, int>(&split),
                "Parts along `dim` of that size, the last of fewer; or of these sizes", "x"_a,
                "split_size_or_sections"_a, dim);
  bind_function(m, "split",
                py::overload_cast<const Tensor&, const std::vector<int64_t>&, int>(&split), "",
                "x"_a, "split_size_or_sections"_a, dim);
  bind_function(
      m, "tensor_split", py::overload_cast<const Tensor&, int64_t, int>(&tensor_split),
      "Parts along `dim` whose sizes differ by at most 1; or that end before these indices", "x"_a,
      "indices_or_sections"_a, dim);
  bind_function(m, "tensor_split",
                py::overload_cast<const Tensor&, const std::vector<int64_t>&, int>(&tensor_split),
                "", "x"_a, "indices_or_sections"_a, dim);
  bind_function(m, "hsplit", &hsplit, "Equal parts along dim 1, of a vector along 0", "x"_a,
                "sections"_a);
  bind_function(m, "vsplit", &vsplit, "Equal parts along dim 0", "x"_a, "sections"_a);
  bind_function(m, "dsplit", &dsplit, "Equal parts along dim 2", "x"_a, "sections"_a);
  bind_function(m, "unbind", &unstack, "The slices of `dim`, which do not have that dim", "x"_a,
                dim);
}

static void bind_places(py::module_& m) {
  bind_function(m, "narrow", &narrow, "`length` elements along `dim` from `start` on", "x"_a,
                "dim"_a, "start"_a, "length"_a);
  bind_function(m, "select", &select, "Element `index` of `dim`, which the result lacks", "x"_a,
                "dim"_a, "index"_a);
  bind_function(m, "index_select", &index_select, "The slices of `dim` at `index` [n]", "x"_a,
                "dim"_a, "index"_a);
  bind_function(m, "unflatten", &unflatten, "Dim `dim` as dims of `sizes`, of which one may be -1",
                "x"_a, "dim"_a, "sizes"_a);
  bind_function(m, "unfold", &unfold,
                "Windows of `size` elements along a dim, `step` apart, in a new last dim", "x"_a,
                "dimension"_a, "size"_a, "step"_a);
  bind_function(m, "rot90", &rot90,
                "Turns the plane of two dims by 90 degrees k times, from the first to the second",
                "x"_a, "k"_a = 1, "dims"_a = std::vector<int>{0, 1});
  bind_function(m, "fliplr", &fliplr, "Dim 1 reversed", "x"_a);
  bind_function(m, "flipud", &flipud, "Dim 0 reversed", "x"_a);
  bind_function(m, "diag_embed", &diag_embed,
                "The last dim as diagonal `offset` of two dims of a tensor of zeros", "x"_a,
                "offset"_a = 0, "dim1"_a = -2, "dim2"_a = -1);
  bind_function(m, "diag", &diag,
                "A vector as a diagonal of a matrix, or a diagonal of a matrix as a vector", "x"_a,
                "diagonal"_a = 0);
  bind_function(m, "diagflat", &diagflat, "All elements as a diagonal of a matrix", "x"_a,
                "offset"_a = 0);
  bind_function(
      m, "contiguous", &contiguous,
      "x itself if its elements are dense in memory, in row-major order; otherwise a copy", "x"_a);
  bind_function(m, "masked_fill", &masked_fill,
                "`value`, in the dtype of x, where `mask` (bool) holds, and x elsewhere", "x"_a,
                "mask"_a, "value"_a);
}

static void bind_joins(py::module_& m) {
  const auto join = [&](const char* name, OfTensors function, const char* text) {
    m.def(name, function, Released(), "tensors"_a, text);
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
  bind_function(m, "atleast_1d", &atleast_1d, "x with at least 1 dim", "x"_a);
  bind_function(m, "atleast_2d", &atleast_2d, "x with at least 2 dims", "x"_a);
  bind_function(m, "atleast_3d", &atleast_3d, "x with at least 3 dims", "x"_a);
}

/// One whole number, or a sequence of them.
static std::vector<int64_t> whole_numbers(const char* what, const py::object& given) {
  if (!PyTuple_Check(given.ptr()) && !PyList_Check(given.ptr())) return {whole_number(what, given)};
  std::vector<int64_t> numbers;
  for (const py::handle one : given) numbers.push_back(whole_number(what, one));
  return numbers;
}

Tensors tensors_in(const std::string& what, const py::args& given, const char* kind) {
  Tensors tensors;
  for (const py::handle one : given) {
    tensors.push_back(tensor_from(what, kind, tensors.size(), one));
  }
  return tensors;
}

static std::optional<int> dim_or_all(const char* what, const py::object& axis) {
  return axis.is_none() ? std::nullopt : std::optional(dim_number(what, axis));
}

static Tensor repeat_by(const Tensor& x, const py::object& repeats, const py::object& axis) {
  const std::optional<int> dim = dim_or_all("repeat", axis);
  if (const auto counts = tensor_of(repeats)) {
    return released([&] { return repeat(x, *counts, dim); });
  }
  const int64_t count = whole_number("repeat", repeats);
  return released([&] { return repeat(x, count, dim); });
}

static void bind_dims(py::module_& m) {
  m.def("flatten", &flatten, Released(), "x"_a, "start_dim"_a = 0, "end_dim"_a = -1,
        "Dims start_dim to end_dim as one dim");
  m.def("matrix_transpose", &matrix_transpose, Released(), "x"_a,
        "x [..., m, n] as [..., n, m]; a view. ValueError for fewer than two dims");
  m.def(
      "expand_dims",
      [](const Tensor& x, int axis) {
        if (axis < -x.ndim() - 1 || axis > x.ndim()) {
          throw py::index_error(concat("expand_dims: axis is ", axis, ", expected ", -x.ndim() - 1,
                                       " to ", x.ndim()));
        }
        return released([&] { return unsqueeze(x, axis); });
      },
      "x"_a, "axis"_a = 0,
      "Inserts a dim of size 1 at `axis`; a view. IndexError when axis is out of range");
  m.def(
      "moveaxis",
      [](const Tensor& x, const py::object& source, const py::object& destination) {
        const std::vector<int> from = named_dims(source), to = named_dims(destination);
        return released([&] { return moveaxis(x, from, to); });
      },
      "x"_a, "source"_a, "destination"_a,
      "Moves the dims `source` (one or several) to the places `destination`; the others keep their "
      "order. A view. ValueError when their numbers differ or one is given twice");
  m.def("diagonal", py::overload_cast<const Tensor&, int64_t, int, int>(&diagonal), Released(),
        "x"_a, "offset"_a = 0, "dim1"_a = -2, "dim2"_a = -1,
        "Elements (i, i + offset) of two dims, as a new last dim");
  m.def(
      "broadcast_arrays",
      [](const py::args& arrays) {
        const Tensors tensors = tensors_in("broadcast_arrays", arrays);
        return released([&] { return broadcast_tensors(tensors); });
      },
      "The tensors as a list, each broadcast to the shape that all of them fit; no copies. "
      "ValueError when they fit none");
  m.def(
      "meshgrid",
      [](const py::args& arrays, const std::string& indexing) {
        const Tensors tensors = tensors_in("meshgrid", arrays);
        return released([&] { return meshgrid(tensors, indexing); });
      },
      "indexing"_a = "xy",
      "A list of tensors, one for each of the given [n0], [n1], ..., with the coordinates of a "
      "grid [n0, n1, ...], or [n1, n0, ...] when `indexing` is \"xy\". ValueError for another "
      "indexing, and for tensors that do not have one dim");
}

void bind_rearrangements(py::module_& m) {
  bind_splits(m);
  bind_places(m);
  bind_joins(m);
  bind_dims(m);
  m.def("stack", &stack, Released(), "arrays"_a, "axis"_a = 0,
        "Joins tensors of one shape along a new dim `axis`. ValueError when shapes differ or there "
        "are none");
  m.def(
      "unstack",
      [](const Tensor& x, int axis) {
        return py::tuple(py::cast(released([&] { return unstack(x, axis); })));
      },
      "x"_a, "axis"_a = 0, "A tuple of the slices of `axis`, which do not have that dim");
  m.def("repeat", &repeat_by, "x"_a, "repeats"_a, "axis"_a = py::none(),
        "Repeats each element of `axis` (of the flattened tensor when None) `repeats` times: an "
        "int, or a tensor of one count each, which every rank reads. ValueError for negative "
        "counts");
  m.def(
      "tile",
      [](const Tensor& x, const py::object& repetitions) {
        const std::vector<int64_t> counts = whole_numbers("tile", repetitions);
        return released([&] { return tile(x, counts); });
      },
      "x"_a, "repetitions"_a,
      "Repeats the whole tensor repetitions[i] times along dim i, counted from the last one. "
      "ValueError for a negative number");
  m.def(
      "roll",
      [](const Tensor& x, const py::object& shift, const py::object& axis) {
        const std::vector<int64_t> shifts = whole_numbers("roll", shift);
        const std::vector<int> dims = dims_of(axis);
        return released([&] { return roll(x, shifts, dims); });
      },
      "x"_a, "shift"_a, "axis"_a = py::none(),
      "Moves the elements by `shift` along `axis`, from the end to the front; several shifts for "
      "several axes; over the flattened tensor when axis is None. ValueError when their numbers "
      "differ");
  m.def(
      "diff",
      [](const Tensor& x, int axis, int n, const std::optional<Tensor>& prepend,
         const std::optional<Tensor>& append) {
        return diff(x, axis, n, prepend.value_or(Tensor()), append.value_or(Tensor()));
      },
      Released(), "x"_a, py::kw_only(), "axis"_a = -1, "n"_a = 1, "prepend"_a = py::none(),
      "append"_a = py::none(),
      "Differences of neighbours along `axis`, `n` times, with `prepend` before and `append` "
      "behind it; for bool, whether they differ. ValueError when n is negative");
}

}  // namespace weft::python
