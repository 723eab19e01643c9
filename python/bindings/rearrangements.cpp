// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "weft/error.h"
#include "weft/ops/parts.h"
#include "weft/ops/shapes.h"

namespace weft::python {

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
  m.def("flatten", &flatten, Released(), py::arg("x"), py::arg("start_dim") = 0,
        py::arg("end_dim") = -1, "Dims start_dim to end_dim as one dim");
  m.def("matrix_transpose", &matrix_transpose, Released(), py::arg("x"),
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
      py::arg("x"), py::arg("axis") = 0,
      "Inserts a dim of size 1 at `axis`; a view. IndexError when axis is out of range");
  m.def(
      "moveaxis",
      [](const Tensor& x, const py::object& source, const py::object& destination) {
        const std::vector<int> from = named_dims(source), to = named_dims(destination);
        return released([&] { return moveaxis(x, from, to); });
      },
      py::arg("x"), py::arg("source"), py::arg("destination"),
      "Moves the dims `source` (one or several) to the places `destination`; the others keep their "
      "order. A view. ValueError when their numbers differ or one is given twice");
  m.def("diagonal", py::overload_cast<const Tensor&, int64_t, int, int>(&diagonal), Released(),
        py::arg("x"), py::arg("offset") = 0, py::arg("dim1") = -2, py::arg("dim2") = -1,
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
      py::arg("indexing") = "xy",
      "A list of tensors, one for each of the given [n0], [n1], ..., with the coordinates of a "
      "grid [n0, n1, ...], or [n1, n0, ...] when `indexing` is \"xy\". ValueError for another "
      "indexing, and for tensors that do not have one dim");
}

void bind_rearrangements(py::module_& m) {
  bind_dims(m);
  m.def("stack", &stack, Released(), py::arg("arrays"), py::arg("axis") = 0,
        "Joins tensors of one shape along a new dim `axis`. ValueError when shapes differ or there "
        "are none");
  m.def(
      "unstack",
      [](const Tensor& x, int axis) {
        return py::tuple(py::cast(released([&] { return unstack(x, axis); })));
      },
      py::arg("x"), py::arg("axis") = 0,
      "A tuple of the slices of `axis`, which do not have that dim");
  m.def("repeat", &repeat_by, py::arg("x"), py::arg("repeats"), py::arg("axis") = py::none(),
        "Repeats each element of `axis` (of the flattened tensor when None) `repeats` times: an "
        "int, or a tensor of one count each, which every rank reads. ValueError for negative "
        "counts");
  m.def(
      "tile",
      [](const Tensor& x, const py::object& repetitions) {
        const std::vector<int64_t> counts = whole_numbers("tile", repetitions);
        return released([&] { return tile(x, counts); });
      },
      py::arg("x"), py::arg("repetitions"),
      "Repeats the whole tensor repetitions[i] times along dim i, counted from the last one. "
      "ValueError for a negative number");
  m.def(
      "roll",
      [](const Tensor& x, const py::object& shift, const py::object& axis) {
        const std::vector<int64_t> shifts = whole_numbers("roll", shift);
        const std::vector<int> dims = dims_of(axis);
        return released([&] { return roll(x, shifts, dims); });
      },
      py::arg("x"), py::arg("shift"), py::arg("axis") = py::none(),
      "Moves the elements by `shift` along `axis`, from the end to the front; several shifts for "
      "several axes; over the flattened tensor when axis is None. ValueError when their numbers "
      "differ");
  m.def(
      "diff",
      [](const Tensor& x, int axis, int n, const std::optional<Tensor>& prepend,
         const std::optional<Tensor>& append) {
        return diff(x, axis, n, prepend.value_or(Tensor()), append.value_or(Tensor()));
      },
      Released(), py::arg("x"), py::kw_only(), py::arg("axis") = -1, py::arg("n") = 1,
      py::arg("prepend") = py::none(), py::arg("append") = py::none(),
      "Differences of neighbours along `axis`, `n` times, with `prepend` before and `append` "
      "behind it; for bool, whether they differ. ValueError when n is negative");
}

}  // namespace weft::python
