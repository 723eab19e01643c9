// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "python/bindings/casters.h"
#include "weft/module.h"

namespace weft::python {

// Python's cycle collector frees objects that refer only to each other, such as a module and a hook
// that holds it, if it sees every reference. Therefore a module made in Python has exactly one
// Python object, which stores its attributes and hooks, and its parents in C++ refer to that
// object.

/// The deleter of a pointer that refers to a module's Python object.
struct HeldObject {
  PyObject* object;
  void operator()(const void*) const;
};

/// Returns the module, which keeps its Python object. Throws TypeError naming `what` for other
/// objects.
std::shared_ptr<Module> kept_with_object(const char* what, const py::object& module);

/// Returns true for the object of a module made in Python. A part that C++ made gets an object on
/// demand, which lives only while it is referenced.
bool is_made_in_python(py::handle module);

/// For a class of modules: lets the collector see children.
py::custom_type_setup with_visible_children();

}  // namespace weft::python
