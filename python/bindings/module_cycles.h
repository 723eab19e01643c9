// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "python/bindings/casters.h"
#include "weft/module.h"

namespace weft::python {

// Python's collector of cycles frees what only refers to itself, a module and the hook that holds
// it for example, where it sees every reference. So a module that is made in Python lives in one
// Python object, which has its attributes and hooks, and its parents' C++ refers to that object.

/// The module, which keeps its Python object. TypeError names `what` when it is no Module.
std::shared_ptr<Module> kept_with_object(const char* what, const py::object& module);

/// Whether the object is that of a module made in Python; a part that C++ made gets an object when
/// it is asked for, and no longer than it is held.
bool is_made_in_python(py::handle module);

/// Of a class of modules: the collector sees children too.
py::custom_type_setup with_visible_children();

}  // namespace weft::python
