// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/numpy.h>

#include <string>

#include "python/bindings/casters.h"
#include "weft/block.h"

namespace weft::python {

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
/// Returns a dense float32 copy of a bfloat16 block.
py::array widened(const MemoryBlock& block);

}  // namespace weft::python
