// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace weft::python {

/// What `function` gives, run without the interpreter's lock: whatever may compute or wait. It
/// touches no Python object.
template <class Function>
auto released(Function&& function) {
  const pybind11::gil_scoped_release release;
  return function();
}

}  // namespace weft::python
