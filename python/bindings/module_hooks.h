// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "python/bindings/callable.h"
#include "python/bindings/modules.h"

namespace weft::python {

/// Removes hooks that were added in Python; keeps neither the hooks nor the module alive.
class HooksOfPython {
 public:
  HooksOfPython(HookHandle hooks, Callable object, size_t number)
      : hooks_(std::move(hooks)), object_(std::move(object)), number_(number) {}
  void remove();

 private:
  HookHandle hooks_;
  /// A weak reference to the object that stores the hooks; none if C++ keeps them.
  Callable object_;
  size_t number_;
};

/// Adds the hooks that another module's object keeps, to a copy of it.
void add_hooks_of(const ModuleObject& module, const py::dict& hooks);
/// Adds before(*inputs) and after(*outputs).
HooksOfPython add_hooks(const ModuleObject& module, const py::object& before,
                        const py::object& after);
/// Adds hook(module, inputs), called before forward.
HooksOfPython register_forward_pre_hook(const ModuleObject& module, const py::object& hook);
/// Adds hook(module, inputs, output), called after forward.
HooksOfPython register_forward_hook(const ModuleObject& module, const py::object& hook);

}  // namespace weft::python
