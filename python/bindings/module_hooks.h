// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "python/bindings/callable.h"
#include "python/bindings/modules.h"

namespace weft::python {

/// Takes away the hooks that Python gave a module; it keeps neither.
class HooksOfPython {
 public:
  HooksOfPython(HookHandle hooks, Callable object, size_t number)
      : hooks_(std::move(hooks)), object_(std::move(object)), number_(number) {}
  void remove();

 private:
  HookHandle hooks_;
  /// A weak reference on the object that lists them; none where C++ keeps them.
  Callable object_;
  size_t number_;
};

/// before(*inputs) and after(*outputs).
HooksOfPython add_hooks(const ModuleObject& module, const py::object& before,
                        const py::object& after);
/// hook(module, inputs) before forward.
HooksOfPython register_forward_pre_hook(const ModuleObject& module, const py::object& hook);
/// hook(module, inputs, output) after forward.
HooksOfPython register_forward_hook(const ModuleObject& module, const py::object& hook);

}  // namespace weft::python
