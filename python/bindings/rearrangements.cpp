// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/views.h"
#include "weft/ops/shapes.h"

#include <algorithm>
#include <functional>
#include <variant>

#include "python/bindings/bindings.h"
#include "weft/ops/elementwise.h"
#include "weft/torch.h"

namespace weft::python {

Tensor reshaped(const Tensor& x, Shape shape) {
  int64_t known = 1, unknown = 0;
  for (const int64_t size : shape) (size == -1 ? unknown += 1 : known *= size);
  if (unknown == 0) return reshape(x, shape);
  if (unknown > 1) fail("reshape: shape is ", shape, ", expected at most one -1");
  if (known <= 0 || x.numel() % known != 0) {
    fail("reshape: shape is ", shape, ", expected one of ", x.numel(), " elements, those of ",
         x.shape());
  }
  std::replace(shape.begin(), shape.end(), int64_t{-1}, x.numel() / known);
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

void bind_shapes(py::module_& m) {
  def(m, "reshape(x, shape, *, copy=None)",
      with_rule(
          "reshape",
          "The same elements in row-major order as `shape`, of whose sizes one may be -1; a view "
          "where memory allows. copy=True always copies; copy=False never, but raises ValueError"),
      [](const Tensor& x, const Shape& shape, const std::optional<bool>& copy) {
        const Tensor result = reshaped(x, shape);
        if (!copy || is_view_of(result, x)) return copy.value_or(false) ? clone(result) : result;
        if (!*copy)
          fail("reshape: shape is ", shape, ", expected one that a view of the tensor ", x.shape(),
               " can have, because copy is False");
        return result;
      });
  def(m, "transpose(x, dim0, dim1)", &transpose,
      with_rule("permute", "Exchanges two dims; a view"));
  def(m, "permute_dims(x, axes)",
      with_rule("permute", "Dim i of the result is dim axes[i] of x; a view"),
      [](const Tensor& x, const std::variant<std::vector<int>, int>& axes) {
        const int* const one = std::get_if<int>(&axes);
        return permute(x, one ? std::vector<int>{*one} : std::get<0>(axes));
      });
  def(m, "slice(x, dim, start, stop, step=1)", &slice,
      with_rule("slice",
                "Elements start, start + step, ... below stop of `dim`; negative start and stop "
                "count from the end"));
  def(m, "concat(arrays, axis=0)",
      with_rule(
          "cat",
          "One after the other along `axis`; the other dims are equal. None: flattened before"),
      [](const Tensors& tensors, const py::object& axis) {
        const bool flat = axis.is_none();
        const int at = flat ? 0 : dim_number("concat", axis);
        return released([&] {
          if (!flat) return cat(tensors, at);
          Tensors rows;
          for (const Tensor& tensor : tensors) rows.push_back(reshape(tensor, {tensor.numel()}));
          return cat(rows, 0);
        });
      });
  def(m, "cat(tensors, dim=0)", &cat,
      with_rule("cat", "One after the other along `dim`; the other dims are equal"));
  def(m, "pad(x, dim, before, after)", &pad,
      with_rule("slice", "`before` and `after` zeros more along `dim`"));
  def(m, "broadcast_to(x, shape)", &expand,
      with_rule("expand", "Dims of size 1, and new leading ones, repeated to `shape`; no copy"));
  def(m, "squeeze(x, axis=None)",
      with_rule("reshape", "Removes the dims of size 1 that `axis` names, or all of them; a view"),
      [](const Tensor& x, const std::optional<DimList>& axis) {
        return axis ? squeezed(x, *axis) : torch::squeeze(x);
      });
  def(m, "flip(x, axis=None)",
      with_rule("flip", "The elements of `axis` (all dims unless given) in reverse order"),
      [](const Tensor& x, const std::optional<DimList>& axis) {
        return is_no_dim(axis) ? clone(x) : flip(x, dims_of(axis));
      });
  def(m, "tril(x, k=0)", &tril,
      with_rule("triangle", "x with zeros above diagonal `k` of its last two dims"));
  def(m, "triu(x, k=0)", &triu,
      with_rule("triangle", "x with zeros below diagonal `k` of its last two dims"));
  def(m, "unsqueeze(x, dim)", &unsqueeze,
      with_rule("reshape", "Adds a dim of size 1 before dim `dim`; a view"));
}

/// A function of several tensors that takes them as a sequence.
using OfTensors = Tensor (*)(const Tensors&);

/// Binds a function that cuts into equal parts, or into those that end before indices of `dim`.
static void bind_parts(py::module_& m, const char* name, Tensors (*equal)(const Tensor&, int64_t),
                       int dim, const char* text) {
  using CountOrIndices = std::variant<int64_t, std::vector<int64_t>>;
  def(m, concat(name, "(x, indices_or_sections)"),
      concat(text, "; or that end before these").c_str(),
      [equal, dim](const Tensor& x, const CountOrIndices& cut) {
        if (const auto* count = std::get_if<int64_t>(&cut)) return equal(x, *count);
        return tensor_split(x, std::get<1>(cut), dim == 1 && x.ndim() == 1 ? 0 : dim);
      });
}

static void bind_splits(py::module_& m) {
  def(m, "chunk(x, chunks, dim=0)", &chunk,
      "At most `chunks` parts along `dim`, of ceil(size / chunks) elements, the last of fewer");
  def(m, "split(x, split_size_or_sections, dim=0)",
      py::overload_cast<const Tensor&, int64_t, int>(&split),
      "Parts along `dim` of that size, the last of fewer; or of these sizes");
  def(m, "split(x, split_size_or_sections, dim=0)",
      py::overload_cast<const Tensor&, const std::vector<int64_t>&, int>(&split));
  def(m, "tensor_split(x, indices_or_sections, dim=0)",
      py::overload_cast<const Tensor&, int64_t, int>(&tensor_split),
      "Parts along `dim` whose sizes differ by at most 1; or that end before these indices");
  def(m, "tensor_split(x, indices_or_sections, dim=0)",
      py::overload_cast<const Tensor&, const std::vector<int64_t>&, int>(&tensor_split));
  bind_parts(m, "hsplit", &hsplit, 1, "Equal parts along dim 1, of a vector along 0");
  bind_parts(m, "vsplit", &vsplit, 0, "Equal parts along dim 0");
  bind_parts(m, "dsplit", &dsplit, 2, "Equal parts along dim 2");
  def(m, "unbind(x, dim=0)", &unstack, "The slices of `dim`, which do not have that dim");
}

static void bind_places(py::module_& m) {
  def(m, "narrow(x, dim, start, length)", &narrow, "`length` elements along `dim` from `start` on");
  def(m, "select(x, dim, index)", &select, "Element `index` of `dim`, which the result lacks");
  def(m, "index_select(x, dim, index)", &index_select, "The slices of `dim` at `index` [n]");
  def(m, "unflatten(x, dim, sizes)", &unflatten,
      "Dim `dim` as dims of `sizes`, of which one may be -1");
  def(m, "unfold(x, dimension, size, step)", &unfold,
      "Windows of `size` elements along a dim, `step` apart, in a new last dim");
  m.def("rot90", &rot90, Released(), "x"_a, "k"_a = 1, "dims"_a = std::vector<int>{0, 1},
        "Turns the plane of two dims by 90 degrees k times, from the first to the second");
  def(m, "fliplr(x)", &fliplr, "Dim 1 reversed");
  def(m, "flipud(x)", &flipud, "Dim 0 reversed");
  def(m, "diag_embed(x, offset=0, dim1=-2, dim2=-1)", &diag_embed,
      "The last dim as diagonal `offset` of two dims of a tensor of zeros");
  def(m, "diag(x, diagonal=0)", &diag,
      "A vector as a diagonal of a matrix, or a diagonal of a matrix as a vector");
  def(m, "diagflat(x, offset=0)", &diagflat, "All elements as a diagonal of a matrix");
  def(m, "contiguous(x)", &contiguous,
      "x itself if its elements are dense in memory, in row-major order; otherwise a copy");
  def(m, "masked_fill(x, mask, value)", &masked_fill,
      "`value`, in the dtype of x, where `mask` (bool) holds, and x elsewhere");
}

static void bind_joins(py::module_& m) {
  const auto join = [&](const char* name, OfTensors function, const char* text) {
    def(m, concat(name, "(tensors)"), function, text);
  };
  join("hstack", &hstack, "Joins along dim 1, vectors along dim 0");
  join("vstack", &vstack, "Joins along dim 0; vectors are rows");
  join("dstack", &dstack, "Joins along dim 2");
  join("column_stack", &column_stack, "Joins along dim 1; vectors are columns");
  const auto joins_all = [&](const char* name, OfTensors function, const char* text) {
    def(m, concat(name, "(*given)"), text, [name, function](const py::args& given) {
      const Tensors tensors = tensors_in(name, given);
      return released([&] { return function(tensors); });
    });
  };
  joins_all("block_diag", &block_diag, "Matrices along the diagonal of one");
  joins_all("cartesian_prod", &cartesian_prod,
            "All combinations of an element of each: a row each");
  def(m, "atleast_1d(x)", &atleast_1d, "x with at least 1 dim");
  def(m, "atleast_2d(x)", &atleast_2d, "x with at least 2 dims");
  def(m, "atleast_3d(x)", &atleast_3d, "x with at least 3 dims");
}

static void bind_dims(py::module_& m) {
  def(m, "flatten(x, start_dim=0, end_dim=-1)", &flatten, "Dims start_dim to end_dim as one dim");
  def(m, "matrix_transpose(x)", &matrix_transpose,
      "x [..., m, n] as [..., n, m]; a view. ValueError for fewer than two dims");
  def(m, "expand_dims(x, axis=0)",
      "Inserts a dim of size 1 at `axis`; a view. IndexError when axis is out of range",
      [](const Tensor& x, int axis) {
        if (axis < -x.ndim() - 1 || axis > x.ndim()) {
          throw py::index_error(concat("expand_dims: axis is ", axis, ", expected ", -x.ndim() - 1,
                                       " to ", x.ndim()));
        }
        return unsqueeze(x, axis);
      });
  def(m, "moveaxis(x, source, destination)", taking<Tensor, DimList, DimList>(&moveaxis),
      "Moves the dims `source` (one or several) to the places `destination`; the others keep their "
      "order. A view. ValueError when their numbers differ or one is given twice");
  def(m, "diagonal(x, offset=0, dim1=-2, dim2=-1)",
      py::overload_cast<const Tensor&, int64_t, int, int>(&diagonal),
      "Elements (i, i + offset) of two dims, as a new last dim");
  def(m, "broadcast_arrays(*arrays)",
      "The tensors as a list, each broadcast to the shape that all of them fit; no copies. "
      "ValueError when they fit none",
      [](const py::args& arrays) {
        const Tensors tensors = tensors_in("broadcast_arrays", arrays);
        return released([&] { return broadcast_tensors(tensors); });
      });
  def(m, "meshgrid(*arrays, indexing='xy')",
      "A list of tensors, one for each of the given [n0], [n1], ..., with the coordinates of a "
      "grid [n0, n1, ...], or [n1, n0, ...] when `indexing` is \"xy\". ValueError for another "
      "indexing, and for tensors that do not have one dim",
      [](const py::args& arrays, const std::string& indexing) {
        const Tensors tensors = tensors_in("meshgrid", arrays);
        return released([&] { return meshgrid(tensors, indexing); });
      });
}

void bind_rearrangements(py::module_& m) {
  bind_splits(m);
  bind_places(m);
  bind_joins(m);
  bind_dims(m);
  def(m, "stack(arrays, axis=0)", &stack,
      "Joins tensors of one shape along a new dim `axis`. ValueError when shapes differ or there "
      "are none");
  def(m, "unstack(x, axis=0)", &unstack,
      "A tuple of the slices of `axis`, which do not have that dim");
  def(m, "repeat(x, repeats, axis=None)",
      "Repeats each element of `axis` (of the flattened tensor when None) `repeats` times: an int, "
      "or a tensor of one count each, which every rank reads. ValueError for negative counts",
      [](const Tensor& x, const std::variant<Tensor, int64_t>& repeats,
         const std::optional<int>& axis) {
        return std::visit([&](const auto& counts) { return repeat(x, counts, axis); }, repeats);
      });
  def(m, "tile(x, repetitions)", taking<Tensor, IntList>(&tile),
      "Repeats the whole tensor repetitions[i] times along dim i, counted from the last one. "
      "ValueError for a negative number");
  def(m, "roll(x, shift, axis=None)",
      "Moves the elements by `shift` along `axis`, from the end to the front; several shifts for "
      "several axes; over the flattened tensor when axis is None. ValueError when their numbers "
      "differ",
      [](const Tensor& x, const IntList& shift, const std::optional<DimList>& axis) {
        if (axis && axis->empty() && !shift.empty()) {
          fail("roll: number of axes is 0, expected ", shift.size(), ", one for each shift");
        }
        return roll(x, shift, axis.value_or(DimList()));
      });
  def(m, "_torch_roll(input, shifts, dims=())",
      "Moves the elements along `dims`, or the flattened tensor without dims",
      [](const Tensor& x, const IntList& shifts, const std::optional<DimList>& dims) {
        return roll(x, shifts, dims.value_or(DimList()));
      });
  def(m, "diff(x, *, axis=-1, n=1, prepend=None, append=None)",
      taking<Tensor, int, int, MaybeTensor, MaybeTensor>(&diff),
      "Differences of neighbours along `axis`, `n` times, with `prepend` before and `append` "
      "behind it; for bool, whether they differ. ValueError when n is negative");
}

}  // namespace weft::python
