// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/trampoline_self_life_support.h>

#include "python/bindings/bindings.h"
#include "weft/module.h"

namespace weft::python {

/// A built-in class of modules. Python knows them as final: their forward is not asked of Python,
/// and would pass over one's own in silence. Python objects among them live as long as C++ holds
/// them.
template <class M>
using ModuleClass = py::class_<M, Module, py::smart_holder>;

/// A module of a tree, which keeps all of the tree.
inline std::shared_ptr<Module> part_of(const std::shared_ptr<Module>& tree, Module* module) {
  return {tree, module};
}

/// What Python gives as parameters: a module, Parameters, or (name, Parameter) pairs.
std::vector<NamedParameter> named_parameters_of(const py::object& given);
/// The same without names.
std::vector<ParameterPtr> parameters_of(const py::object& given);

}  // namespace weft::python
