// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace weft::python {

namespace py = pybind11;

/// Words that NumPy and PyTorch use for one argument, in groups: a function that has one of a group
/// takes the others for it.
py::tuple words_for_arguments();

/// Replaces all functions and methods that are bound in `m` by ones that take these words, and that
/// state wrong arguments in one sentence.
void word_functions(py::module_& m);

}  // namespace weft::python
