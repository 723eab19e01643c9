// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "python/bindings/indexing.h"
#include "python/bindings/lock.h"
#include "python/bindings/operands.h"
#include "weft/error.h"
#include "weft/ops/in_place.h"
#include "weft/ops/shapes.h"

namespace weft::python {

namespace {

/// The effect of an index on one dim of the tensor, or a new dim.
struct Selection {
  enum class Kind { whole, range, one, created } kind = Kind::whole;
  int64_t start = 0, stop = 0, step = 1;
};

/// An int, or what stands for one: a tensor of one integer and no dims among them.
bool is_position(py::handle entry) {
  if (const auto tensor = tensor_of(entry)) return tensor->ndim() == 0;
  return PyIndex_Check(entry.ptr()) && !PyBool_Check(entry.ptr());
}

/// The entries of an index, one a dim, with ... as the dims that are not named.
std::vector<Selection> selections_of(const Tensor& x, const py::object& index) {
  const py::tuple entries =
      PyTuple_Check(index.ptr()) ? py::reinterpret_borrow<py::tuple>(index) : py::make_tuple(index);
  int named = 0;
  for (const py::handle entry : entries) named += !entry.is_none() && entry.ptr() != Py_Ellipsis;
  if (named > x.ndim()) {
    throw py::index_error(concat("index: ", named, " entries for a tensor ", x.shape()));
  }
  std::vector<Selection> selections;
  int dim = 0;
  bool has_ellipsis = false;
  for (const py::handle entry : entries) {
    if (entry.is_none()) {
      selections.push_back({Selection::Kind::created});
    } else if (entry.ptr() == Py_Ellipsis) {
      if (has_ellipsis) throw py::index_error("index: ... stands twice");
      has_ellipsis = true;
      for (int skipped = x.ndim() - named; skipped > 0; --skipped, ++dim) selections.push_back({});
    } else if (PySlice_Check(entry.ptr())) {
      Py_ssize_t start, stop, step;
      if (PySlice_Unpack(entry.ptr(), &start, &stop, &step) < 0) throw py::error_already_set();
      PySlice_AdjustIndices(x.shape()[dim], &start, &stop, step);
      if (step < 0) fail("index: step ", step, " is negative; use weft.flip");
      selections.push_back({Selection::Kind::range, start, std::max(start, stop), step});
      ++dim;
    } else if (is_position(entry)) {
      const auto size = x.shape()[dim];
      const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(entry.ptr()));
      if (!number) throw py::error_already_set();
      int overflow = 0;
      const int64_t at = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
      if (overflow != 0 || at < -size || at >= size) {
        throw py::index_error(concat("index: ", py::str(number).cast<std::string>(),
                                     " is out of dim ", dim, " of ", x.shape()));
      }
      selections.push_back({Selection::Kind::one, at < 0 ? at + size : at});
      ++dim;
    } else {
      throw py::index_error(concat("index: a ", Py_TYPE(entry.ptr())->tp_name,
                                   " is none of int, slice, None and ...; see weft.take"));
    }
  }
  return selections;
}

Tensor selected(const Tensor& x, const std::vector<Selection>& selections) {
  Tensor result = x;
  int dim = 0;
  for (const Selection& s : selections) {
    switch (s.kind) {
      case Selection::Kind::whole:
        ++dim;
        break;
      case Selection::Kind::range:
        if (s.start != 0 || s.stop != result.shape()[dim] || s.step != 1) {
          result = slice(result, dim, s.start, s.stop, s.step);
        }
        ++dim;
        break;
      case Selection::Kind::one:
        result = squeeze(slice(result, dim, s.start, s.start + 1), dim);
        break;
      case Selection::Kind::created:
        result = unsqueeze(result, dim++);
        break;
    }
  }
  return result;
}

}  // namespace

Tensor indexed(const Tensor& x, const py::object& index) {
  const std::vector<Selection> selections = selections_of(x, index);
  return released([&] { return selected(x, selections); });
}

void set_indexed(const Tensor& x, const py::object& index, const py::object& value) {
  const std::vector<Selection> selections = selections_of(x, index);
  Operand given;
  if (!load_operand(value, given)) {
    throw py::type_error(concat("index: a ", Py_TYPE(value.ptr())->tp_name,
                                " is assigned to elements of a tensor; give a Tensor or a number"));
  }
  released([&] {
    assign_(
        x, [selections](const Tensor& from) { return selected(from, selections); }, given);
  });
}

}  // namespace weft::python
