// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/trampoline_self_life_support.h>

#include <string>
#include <type_traits>
#include <variant>

#include "python/bindings/casters.h"
#include "python/bindings/module_calls.h"
#include "weft/error.h"
#include "weft/module.h"
#include "weft/tier.h"

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

/// Lets the collector see the children of a class of modules.
py::custom_type_setup with_visible_children();

/// False (memory), True (the host) or "disk:DIR"; errors begin with `what`.
inline Tier tier_from(std::string_view what, const std::variant<bool, std::string>& tier) {
  if (const bool* on_host = std::get_if<bool>(&tier)) return *on_host;
  return Tier::named(what, std::get<std::string>(tier));
}

inline bool is_module(PyObject* object) { return py::isinstance<Module>(py::handle(object)); }

/// The Python object of a module.
class ModuleObject : public py::object {
 public:
  PYBIND11_OBJECT(ModuleObject, py::object, is_module)
};

/// The interface of a module whose class is written in Python, whatever its C++ class.
class WrittenInPython {
 public:
  virtual ~WrittenInPython() = default;
  /// Its forward in Python; None where the built-in one is used. Called with the lock held.
  virtual py::object written_forward() const = 0;
  /// Runs the forward in use, with `arguments` unless they are null.
  virtual Tensors forward_with(const ArgumentsPtr& arguments, const Tensors& inputs) = 0;
};

/// Returns `forward` of the object; None if that is the function of the built-in class.
py::object forward_beside(const py::object& self, const py::object& built_in_class);

/// A C++ module class from which Python classes may derive.
template <class M>
class InPython : public M, public WrittenInPython, public py::trampoline_self_life_support {
 public:
  using M::M;

  py::object written_forward() const override {
    if constexpr (std::is_same_v<M, Module>) return py::getattr(self(), "forward", py::none());
    return forward_beside(self(), py::type::of<M>());
  }

  Tensors forward_with(const ArgumentsPtr& arguments, const Tensors& inputs) override {
    {
      const Locked lock;
      const py::object written = written_forward();
      if (!written.is_none()) return run_written(self(), written, arguments, inputs);
    }
    return built_in_forward(inputs);
  }

  /// The forward of M, even if Python overrides it.
  Tensors built_in_forward(const Tensors& inputs) {
    if constexpr (std::is_same_v<M, Module>) {
      const Locked lock;
      fail("module: ", Py_TYPE(self().ptr())->tp_name,
           " has no forward, expected a class that defines forward(self, ...)");
    } else {
      return M::forward(inputs);
    }
  }

 protected:
  Tensors forward(const Tensors& inputs) override { return forward_with(nullptr, inputs); }

 private:
  py::object self() const { return py::cast(static_cast<const M*>(this)); }
};

template <class M, class Base = Module>
using ModuleClass = py::class_<M, Base, InPython<M>, py::smart_holder>;

/// Binds a built-in module class, whose forward derived classes may call.
template <class M, class Base = Module>
ModuleClass<M, Base> bind_module_class(py::module_& m, const char* name, const char* doc) {
  struct Open : M {
    using M::forward;
  };
  return ModuleClass<M, Base>(m, name, py::dynamic_attr(), with_visible_children(), doc)
      .def(
          "forward",
          [name](M& self, const py::args& given) {
            const auto inputs = only_tensors(given);
            if (!inputs) fail_type(name, ": tensors are given by name, expected by position");
            auto* derived = dynamic_cast<InPython<M>*>(&self);
            return one_or_all(released([&] {
              return derived ? derived->built_in_forward(*inputs)
                             : (self.*(&Open::forward))(*inputs);
            }));
          },
          "Runs a call without the hooks around it");
}

/// Returns the C++ module of an object. The object keeps a module whose class is written in Python.
template <class M> std::shared_ptr<M> tree_of(const py::object& module) {
  auto& tree = module.cast<M&>();
  const bool is_written = dynamic_cast<const WrittenInPython*>(&tree) != nullptr;
  if (!is_written) return module.cast<std::shared_ptr<M>>();
  return {&tree, HeldObject{py::object(module).release().ptr()}};
}

/// Returns a module of a tree as a pointer that keeps the whole tree alive.
inline std::shared_ptr<Module> part_of(const std::shared_ptr<Module>& tree, Module* module) {
  return {tree, module};
}

/// The modules of an iterable. Throws TypeError, which begins with `what`, for another object and
/// for one whose __init__ did not run.
std::vector<Module*> modules_in(const char* what, const py::iterable& given);
/// Converts the parameters that Python passes: a module, Parameters, or (name, Parameter) pairs.
std::vector<NamedParameter> named_parameters_of(const py::object& given);
/// The same, without names.
std::vector<ParameterPtr> parameters_of(const py::object& given);

/// A C++ function of a parameter that calls a Python one with its name and the parameter.
template <class Result>
std::function<Result(const NamedParameter&)> function_of_parameter(const py::object& given) {
  const auto function = function_in<Result, const std::string&, const ParameterPtr&>(given);
  if (!function) return {};
  return [function](const NamedParameter& p) { return function(p.name(), p.parameter); };
}

/// Removes hooks that were added in Python; keeps neither the hooks nor the module alive.
struct HooksOfPython {
  void remove();
  HookHandle hooks;
  /// A weak reference to the object that stores the hooks; none if C++ keeps them.
  Callable object;
  size_t number;
};

/// Adds before(*inputs) and after(*outputs), or with `of_module` before(module, inputs) and
/// after(module, inputs, output).
HooksOfPython add_hooks(const ModuleObject& module, const py::object& before,
                        const py::object& after, bool of_module);

}  // namespace weft::python

namespace pybind11::detail {

/// Signatures in docstrings name the class.
template <> struct handle_type_name<weft::python::ModuleObject> {
  static constexpr auto name = const_name("weft._weft.Module");
};

}  // namespace pybind11::detail
