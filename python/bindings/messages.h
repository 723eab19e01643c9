// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace weft::python {

/// Lets errors that pybind11 words itself be one sentence each: arguments of wrong types, numbers
/// that C++ has no room for, objects whose __init__ never ran. Of all that is bound in `m` by then.
void word_errors(pybind11::module_& m);

}  // namespace weft::python
