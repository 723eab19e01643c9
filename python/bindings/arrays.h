// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/numpy.h>

#include <string>

#include "python/bindings/casters.h"
#include "weft/block.h"

namespace weft::python {

/// NumPy's dtype of ours; ValueError for bfloat16, which it has not.
py::dtype numpy_dtype(DType dtype);
/// Ours of NumPy's (any size of the same kind is not the same: ValueError names those there are).
DType dtype_of_numpy(const py::dtype& dtype);

/// The block's own memory as an array that keeps `owner` alive.
py::array array_over(const Block& block, py::handle owner);
/// A dense copy; bfloat16 as float32.
py::array copied_array(const Block& block);
/// Copies an array, or what NumPy makes one of, to the block, in the block's dtype. ValueError
/// naming `what` when the shape is another.
void fill_from_array(const std::string& what, const Block& block, const py::object& values);
/// A dense float32 copy of a bfloat16 block.
py::array widened(const Block& block);

}  // namespace weft::python
