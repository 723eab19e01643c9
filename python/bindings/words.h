// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace weft::python {

namespace py = pybind11;

/// Words that NumPy and PyTorch use for one argument, in groups: a function that has one of a group
/// takes the others for it.
py::tuple words_for_arguments();

/// Notes the arguments of a bound function, by its signature.
void learn_words(PyCFunctionObject* function);

/// The names of a call's keyword arguments as the function has them; `function` is what pybind11
/// keeps as its `self`. ValueError when two words for one argument are given.
py::object words_of(PyObject* function, PyObject* names);

}  // namespace weft::python
