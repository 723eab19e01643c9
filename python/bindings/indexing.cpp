// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <optional>

#include <pybind11/numpy.h>

#include "python/bindings/bindings.h"
#include "weft/extend/views.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/in_place.h"
#include "weft/ops/indexing.h"
#include "weft/ops/shapes.h"

namespace weft::python {

namespace {

/// The effect of an index on one dim of the tensor, or a new dim.
struct Selection {
  /// `created` has size 1, or 0 where a mask without dims is false.
  enum class Kind { whole, range, one, created } kind = Kind::whole;
  int64_t start = 0, stop = 1, step = 1;
  /// Selects from the dim, which stays whole until then.
  Tensor index = {};
};

/// The index tensor that an entry is: a tensor, a list or an array of NumPy.
std::optional<Tensor> index_tensor(py::handle entry) {
  if (auto tensor = tensor_of(entry)) return tensor;
  const bool is_list = PyList_Check(entry.ptr());
  if (!is_list && !py::isinstance<py::array>(entry)) return std::nullopt;
  const py::object made = py::module_::import("weft").attr("asarray")(entry);
  Tensor tensor = made.cast<Tensor>();
  if (is_list && tensor.numel() == 0) tensor = cast(tensor, DType::i64);
  if (is_list) tensor.storage()->mark_equal_on_ranks();
  return tensor;
}

/// The dims that an entry of an index is for.
int dims_of_entry(py::handle entry) {
  if (PyBool_Check(entry.ptr())) return 0;
  if (PyLong_Check(entry.ptr()) || PySlice_Check(entry.ptr())) return 1;
  if (entry.is_none() || entry.ptr() == Py_Ellipsis) return 0;
  const auto tensor = index_tensor(entry);
  return tensor && tensor->dtype() == DType::boolean ? tensor->ndim() : 1;
}

void check_mask(const Tensor& x, const Tensor& mask, int dim) {
  for (int d = 0; d < mask.ndim(); ++d) {
    // The standard lets a mask of size 0 select nothing, whatever the size of the dim.
    if (mask.size(d) == x.size(dim + d) || mask.size(d) == 0) continue;
    throw py::index_error(concat("index: shape of the mask is ", mask.shape(),
                                 ", expected that of ", mask.ndim(), " dims of ", x.shape(),
                                 " from dim ", dim, " on"));
  }
}

/// An int, or what stands for one: a tensor of one integer and no dims among them.
bool is_position(py::handle entry) {
  if (const auto tensor = tensor_of(entry)) {
    return tensor->ndim() == 0 && tensor->dtype() != DType::boolean;
  }
  // An array of NumPy has __index__ too, which fails but for one element.
  if (py::isinstance<py::array>(entry)) {
    const auto array = py::reinterpret_borrow<py::array>(entry);
    return array.ndim() == 0 && (array.dtype().kind() == 'i' || array.dtype().kind() == 'u');
  }
  return PyIndex_Check(entry.ptr()) && !PyBool_Check(entry.ptr());
}

/// The value of a mask without dims: True, False or a tensor of one of them.
std::optional<bool> truth_in(py::handle entry) {
  if (PyBool_Check(entry.ptr())) return entry.ptr() == Py_True;
  const auto tensor = tensor_of(entry);
  if (!tensor || tensor->ndim() > 0 || tensor->dtype() != DType::boolean) return std::nullopt;
  return released([&] { return tensor->detach().full_tensor().item() != 0; });
}

/// The elements of a dim of that size that a slice selects.
Selection range_in(py::handle slice, int64_t size) {
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(slice.ptr(), &start, &stop, &step) < 0) throw py::error_already_set();
  PySlice_AdjustIndices(size, &start, &stop, step);
  if (step > 0) return {Selection::Kind::range, start, std::max(start, stop), step};
  const Py_ssize_t count = std::max<Py_ssize_t>(0, (stop - start + step + 1) / step);
  // Elements first, first - step, ..., start, which `selected` turns round.
  const Py_ssize_t first = start + (count - 1) * step;
  return {Selection::Kind::range, count ? first : 0, count ? start + 1 : 0, step};
}

/// The element of a dim of `x` that an int selects.
int64_t position_in(py::handle entry, const Tensor& x, int dim) {
  const int64_t size = x.size(dim);
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(entry.ptr()));
  if (!number) throw py::error_already_set();
  int overflow = 0;
  const int64_t at = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0 || at < -size || at >= size) {
    throw py::index_error(concat("index: it is ", py::str(number).cast<std::string>(),
                                 ", expected one of the ", size, " elements of dim ", dim, " of ",
                                 x.shape()));
  }
  return at < 0 ? at + size : at;
}

/// The entries of an index, one a dim, with ... as the dims that are not named.
std::vector<Selection> selections_of(const Tensor& x, const py::object& index) {
  const py::tuple entries =
      PyTuple_Check(index.ptr()) ? py::reinterpret_borrow<py::tuple>(index) : py::make_tuple(index);
  int named = 0;
  for (const py::handle entry : entries) named += dims_of_entry(entry);
  if (named > x.ndim()) {
    throw py::index_error(concat("index: number of entries is ", named, ", expected at most ",
                                 x.ndim(), ", the dims of ", x.shape()));
  }
  std::vector<Selection> selections;
  int dim = 0;
  bool has_ellipsis = false;
  for (const py::handle entry : entries) {
    if (entry.is_none()) {
      selections.push_back({Selection::Kind::created});
    } else if (const auto truth = truth_in(entry)) {
      selections.push_back({Selection::Kind::created, 0, *truth ? 1 : 0});
    } else if (entry.ptr() == Py_Ellipsis) {
      if (has_ellipsis) throw py::index_error("index: ... is given twice, expected once");
      has_ellipsis = true;
      for (int skipped = x.ndim() - named; skipped > 0; --skipped, ++dim) selections.push_back({});
    } else if (PySlice_Check(entry.ptr())) {
      selections.push_back(range_in(entry, x.size(dim)));
      ++dim;
    } else if (is_position(entry)) {
      selections.push_back({Selection::Kind::one, position_in(entry, x, dim)});
      ++dim;
    } else if (const auto tensor = index_tensor(entry)) {
      if (is_floating(tensor->dtype())) {
        throw py::index_error(concat("index: dtype of the tensor ", tensor->shape(), " is ",
                                     tensor->dtype(), ", expected an integer or bool"));
      }
      if (tensor->dtype() != DType::boolean) {
        selections.push_back({.index = *tensor});
        ++dim;
        continue;
      }
      check_mask(x, *tensor, dim);
      for (const DimIndex& one : released([&] { return indices_of_mask(*tensor, dim); })) {
        selections.push_back({.index = one.index});
        ++dim;
      }
    } else {
      throw py::index_error(concat("index: it is a ", Py_TYPE(entry.ptr())->tp_name,
                                   ", expected an int, slice, None, ..., tensor or list"));
    }
  }
  return selections;
}

/// `turns`: whether ranges with a negative step are turned round; they lie in ascending order
/// otherwise.
Tensor selected(const Tensor& x, const std::vector<Selection>& selections, bool turns = true) {
  Tensor result = x;
  int dim = 0;
  for (const Selection& s : selections) {
    switch (s.kind) {
      case Selection::Kind::whole: ++dim; break;
      case Selection::Kind::range:
        if (s.start != 0 || s.stop != result.shape()[dim] || s.step != 1) {
          result = slice(result, dim, s.start, s.stop, std::abs(s.step));
          if (s.step < 0 && turns) result = turned(result, {dim});
        }
        ++dim;
        break;
      case Selection::Kind::one:
        result = squeeze(slice(result, dim, s.start, s.start + 1), dim);
        break;
      case Selection::Kind::created:
        result = unsqueeze(result, dim);
        if (s.stop == 0) result = slice(result, dim, 0, 0);
        ++dim;
        break;
    }
  }
  return result;
}

/// The index tensors, by the dims that they have after `selected`; and the dims that it turns
/// round, to `turned` if given.
std::vector<DimIndex> indices_of(const std::vector<Selection>& selections,
                                 std::vector<int>* turned = nullptr) {
  std::vector<DimIndex> indices;
  int dim = 0;
  for (const Selection& s : selections) {
    if (s.index) indices.push_back({dim, s.index});
    if (turned && s.kind == Selection::Kind::range && s.step < 0) turned->push_back(dim);
    dim += s.kind != Selection::Kind::one;
  }
  return indices;
}

/// Runs `function`, whose errors about an index out of range become IndexError.
template <class Function> auto with_index_errors(const Function& function) {
  try {
    return released(function);
  } catch (const std::invalid_argument& error) {
    const std::string_view text = error.what();
    const bool is_index = text.find(" elements of dim ") != std::string_view::npos ||
                          text.starts_with("index: index of dim");
    if (is_index) throw py::index_error(error.what());
    throw;
  }
}

}  // namespace

Tensor indexed(const Tensor& x, const py::object& index) {
  const std::vector<Selection> selections = selections_of(x, index);
  const std::vector<DimIndex> indices = indices_of(selections);
  return with_index_errors([&] {
    const Tensor part = selected(x, selections);
    return indices.empty() ? part : weft::index(part, indices);
  });
}

void set_indexed(const Tensor& x, const py::object& index, const py::object& value) {
  Operand given;
  const bool is_operand = load_operand(value, given);
  // A number where a mask of all elements holds needs no list of places.
  const bool is_one = PyTuple_Check(index.ptr()) && PyTuple_GET_SIZE(index.ptr()) == 1;
  const auto mask =
      tensor_of(is_one ? py::handle(PyTuple_GET_ITEM(index.ptr(), 0)) : py::handle(index));
  if (is_operand && given.is_number() && is_floating(x.dtype()) && mask && x.ndim() > 0 &&
      mask->dtype() == DType::boolean && mask->shape() == x.shape()) {
    return released([&] {
      assign_(
          x, [](const Tensor& from) { return from; }, masked_fill(x, *mask, given));
    });
  }
  const std::vector<Selection> selections = selections_of(x, index);
  if (!is_operand) {
    fail_type("index: value is a ", type_of(value), ", expected a Tensor or a number",
              conversion_of(value));
  }
  std::vector<int> turned;
  const std::vector<DimIndex> indices = indices_of(selections, &turned);
  with_index_errors([&] {
    // The value that `x[::-1] *= 2` assigns shows the elements of x, turned round: it is in place.
    const bool is_shown = indices.empty() && !given.is_number() && is_copied_view(given.tensor);
    const bool has_part = !indices.empty() || (!turned.empty() && !is_shown);
    const Tensor part = has_part ? selected(x, selections) : Tensor();
    if (!indices.empty()) given = index_put(part, indices, given);
    if (!turned.empty() && !is_shown) {
      given = flip(expand(next_to(part, given), part.shape()), turned);
    }
    assign_(
        x,
        [selections, is_shown](const Tensor& from) { return selected(from, selections, is_shown); },
        given);
  });
}

}  // namespace weft::python
