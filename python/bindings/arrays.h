// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/numpy.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "python/bindings/casters.h"
#include "weft/block.h"
#include "weft/tensor.h"

namespace weft::python {

/// The names in NumPy, PyTorch and the array API, by DType.
inline constexpr std::array<const char*, kDTypes> kLongNames = {
    "float32", "bfloat16", "float16", "float64", "int32",  "int64",         "uint8",      "bool",
    "int8",    "int16",    "uint16",  "uint32",  "uint64", "float8_e4m3fn", "float8_e5m2"};

inline constexpr const char* long_name_of(DType dtype) {
  return kLongNames[static_cast<size_t>(dtype)];
}

/// Returns nothing for any other name.
inline std::optional<DType> dtype_of_long_name(std::string_view name) {
  for (size_t i = 0; i < kDTypes; ++i) {
    if (name == kLongNames[i]) return static_cast<DType>(i);
  }
  return std::nullopt;
}

/// Returns NumPy's dtype for a weft dtype; throws ValueError for bfloat16, which NumPy lacks.
py::dtype numpy_dtype(DType dtype);
/// Returns the weft dtype for NumPy's. Throws ValueError, naming the supported dtypes, for other
/// sizes of a kind, too.
DType dtype_of_numpy(const py::dtype& dtype);

/// Returns the block's own memory as an array that keeps `owner` alive.
py::array array_over(const MemoryBlock& block, py::handle owner);
/// Returns a dense copy; bfloat16 as float32.
py::array copied_array(const MemoryBlock& block);
/// Copies an array, or an object that NumPy converts to one, to the block, in the block's dtype.
/// Throws ValueError naming `what` when the shapes differ.
void fill_from_array(const std::string& what, const MemoryBlock& block, const py::object& values);

/// Returns the tensor if its memory may be read now: on one device, and without a gradient that
/// would be lost. Throws ValueError naming `what` otherwise.
Tensor shown(const char* what, const Tensor& x);
/// The same for memory that is read later, too: also refuses a parameter that is unsharded for a
/// while.
Tensor lent(const char* what, const Tensor& x);

/// Makes a tensor of foreign memory: a view when its elements fill the memory without gaps in some
/// order of the dims, otherwise a copy. `owner` keeps the memory alive. With `copy` false a needed
/// copy is a ValueError; with true a copy is always made.
Tensor tensor_over(const char* what, const MemoryBlock& block, std::shared_ptr<void> owner,
                   const std::optional<bool>& copy);

}  // namespace weft::python
