// SPDX-License-Identifier: Apache-2.0
#pragma once

// Implicit conversions between Python and C++, in addition to the bound classes: shapes as tuples,
// dtypes and devices as objects or names, placements as a list, a dict or one placement, and
// operands that are tensors or numbers; and functions that convert explicitly.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "python/bindings/interpreter.h"
#include "python/bindings/tensor_caster.h"
#include "weft/device.h"
#include "weft/dtype.h"
#include "weft/error.h"
#include "weft/ops/in_place.h"
#include "weft/placement.h"
#include "weft/shape.h"
#include "weft/tensor.h"

namespace weft::python {

namespace py = pybind11;
using namespace py::literals;

/// The object of a dtype ("weft.float32"): one each, so that `is` works too.
py::handle object_of(DType dtype);
/// The dtype that an object or a name stands for; nothing for another object. ValueError for a
/// string that is no dtype's name.
std::optional<DType> dtype_of(py::handle object);
/// The same for devices: "cpu", "meta", "cuda:0"; None is the CPU.
std::optional<Device> device_of(py::handle object);
py::object object_of(Device device);
/// Shard(0), Replicate() or Partial("sum").
py::object object_of(const Placement& placement);
std::optional<Placement> placement_of(py::handle object);
py::object object_of(const Placements& placements);
std::optional<Placements> placements_of(py::handle object);
/// A tensor, or what a Parameter computes with; nothing for another object.
std::optional<Tensor> tensor_of(py::handle object);
/// False for an object that is neither a tensor nor a number.
bool load_operand(py::handle object, Operand& operand);
bool load_shape(py::handle object, Shape& shape);

/// A tensor, or an empty handle, which is None in Python.
struct MaybeTensor : Tensor {
  MaybeTensor(Tensor tensor = {}) : Tensor(std::move(tensor)) {}
};

/// Throws TypeError with all parts as one sentence.
template <class... Parts> [[noreturn, gnu::cold]] void fail_type(const Parts&... parts) {
  throw py::type_error(concat(parts...));
}

/// The number of a name among `names`. Throws ValueError naming `what` and its `field` for another.
size_t number_among(const char* what, const char* field, const std::string& name,
                    const std::vector<const char*>& names);

/// Converts an int or an equivalent object. Throws TypeError naming `what` for anything else, and
/// ValueError for a number beyond 64 bits.
int64_t whole_number(const char* what, py::handle given);

/// The same for the number of a dim or an axis, which may be negative.
int dim_number(const char* what, py::handle given);
/// Whole numbers that an argument gives, one or a sequence of them. Those of dims are ints.
template <class T> struct NumberList : std::vector<T> {};
using IntList = NumberList<int64_t>;
using DimList = NumberList<int>;
/// All dims for None. ValueError for a sequence without dims.
std::vector<int> dims_of(const std::optional<DimList>& axis);
/// True when it is () or [].
inline bool is_no_dim(const std::optional<DimList>& axis) { return axis && axis->empty(); }
/// Ints one by one, or in a sequence. TypeError naming `what` for other objects.
Shape sizes_one_by_one(const char* what, const py::args& given);
std::vector<int> dims_one_by_one(const char* what, const py::args& given);

/// The name of a type, for messages; with its module for a tensor of another library.
std::string type_of(py::handle value);
/// "; convert it by ..." for a tensor of another library, otherwise "".
const char* conversion_of(py::handle value);

/// The tensors that a function takes one by one. Throws TypeError naming `what` and the `kind` of
/// object otherwise: "stack: tensor 1 is a list, ...".
Tensors tensors_in(const std::string& what, const py::tuple& given, const char* kind = "tensor");

/// Converts the result of a Python forward: a tensor, or a sequence of tensors. Throws TypeError
/// naming `what` otherwise.
Tensors tensors_of(const std::string& what, py::handle returned);

/// Returns the tensors as a tuple.
py::tuple for_python(const Tensors& tensors);
/// Returns a single tensor as it is, several as a tuple.
py::object one_or_all(Tensors tensors);

}  // namespace weft::python

namespace pybind11::detail {

template <> struct type_caster<weft::python::MaybeTensor> {
  PYBIND11_TYPE_CASTER(weft::python::MaybeTensor, const_name("weft._weft.Tensor | None"));
  bool load(handle source, bool convert) {
    if (source.is_none()) return true;
    make_caster<weft::Tensor> given;
    if (!given.load(source, convert)) return false;
    value = cast_op<const weft::Tensor&>(given);
    return true;
  }
  static handle cast(const weft::Tensor& tensor, return_value_policy, handle parent) {
    if (!tensor) return none().release();
    return make_caster<weft::Tensor>::cast(tensor, return_value_policy::copy, parent);
  }
};

template <> struct type_caster<weft::Shape> {
  PYBIND11_TYPE_CASTER(weft::Shape, const_name("tuple[int, ...]"));
  bool load(handle source, bool) { return weft::python::load_shape(source, value); }
  static handle cast(const weft::Shape& shape, return_value_policy, handle) {
    tuple result(static_cast<size_t>(shape.ndim()));
    for (int d = 0; d < shape.ndim(); ++d) result[static_cast<size_t>(d)] = int_(shape[d]);
    return result.release();
  }
};

/// A caster of T by find(object), and by object_of.
template <class T, std::optional<T> (*find)(handle), auto kName> struct FoundCaster {
  PYBIND11_TYPE_CASTER(T, kName);
  bool load(handle source, bool) {
    std::optional<T> found = find(source);
    if (found) value = *std::move(found);
    return found.has_value();
  }
  static handle cast(const T& given, return_value_policy, handle) {
    return reinterpret_borrow<object>(weft::python::object_of(given)).release();
  }
};

template <>
struct type_caster<weft::DType>
    : FoundCaster<weft::DType, weft::python::dtype_of, const_name("weft._weft.DType | str")> {};
template <>
struct type_caster<weft::Device>
    : FoundCaster<weft::Device, weft::python::device_of, const_name("weft._weft.Device | str")> {};
template <>
struct type_caster<weft::Placement>
    : FoundCaster<weft::Placement, weft::python::placement_of,
                  const_name("weft._weft.Shard | weft._weft.Replicate | weft._weft.Partial")> {};
template <>
struct type_caster<weft::Placements>
    : FoundCaster<weft::Placements, weft::python::placements_of,
                  const_name("weft._weft.Placements | collections.abc.Sequence[weft._weft.Shard | "
                             "weft._weft.Replicate | weft._weft.Partial] | dict[str, "
                             "weft._weft.Shard | weft._weft.Replicate | weft._weft.Partial]")> {};

template <class T> struct type_caster<weft::python::NumberList<T>> {
  PYBIND11_TYPE_CASTER(weft::python::NumberList<T>,
                       const_name("int | collections.abc.Sequence[int]"));
  bool load(handle source, bool) {
    const auto add = [this](handle one) {
      if constexpr (std::is_same_v<T, int>)
        value.push_back(weft::python::dim_number("axis", one));
      else if (!PyIndex_Check(one.ptr()))
        return false;
      else
        value.push_back(weft::python::whole_number("number", one));
      return true;
    };
    const bool is_list = PyTuple_Check(source.ptr()) || PyList_Check(source.ptr());
    if (!is_list) return add(source);
    for (const object one : reinterpret_borrow<sequence>(source)) {
      if (!add(one)) return false;
    }
    return true;
  }
};

template <> struct type_caster<weft::Operand> {
  PYBIND11_TYPE_CASTER(weft::Operand, const_name("weft._weft.Tensor | float"));
  bool load(handle source, bool) { return weft::python::load_operand(source, value); }
};

}  // namespace pybind11::detail
