// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace weft::python {

/// Turns pybind11's own errors into one sentence each: wrong argument types, out-of-range numbers,
/// objects whose __init__ never ran. Applies to all that is bound in `m` before the call.
void word_errors(pybind11::module_& m);

}  // namespace weft::python
