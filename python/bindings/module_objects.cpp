// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/module_calls.h"

#include <atomic>
#include <functional>
#include <utility>

#include "python/bindings/modules.h"
#include "weft/error.h"

namespace weft::python {

static bool is_plain(py::handle value) {
  return value.is_none() || PyLong_Check(value.ptr()) || PyFloat_Check(value.ptr()) ||
         PyUnicode_Check(value.ptr());
}

py::object Arguments::argument_of(py::handle value, const std::string& what) {
  if (auto tensor = tensor_of(value)) {
    tensors_.push_back(*std::move(tensor));
    return {};
  }
  if (is_plain(value)) return py::reinterpret_borrow<py::object>(value);
  fail_type("module: ", what, " is a ", type_of(value),
            ", expected a weft.Tensor, None, a number or a string", conversion_of(value));
}

Arguments::Arguments(py::handle forward, const py::args& given, const py::kwargs& named) {
  const py::object signature = py::module_::import("inspect").attr("signature")(forward);
  const py::object bound = signature.attr("bind")(*given, **named);
  for (const py::handle value : py::tuple(bound.attr("args"))) {
    by_position_.push_back(argument_of(value, concat("argument ", by_position_.size())));
  }
  for (const auto& [name, value] : py::dict(bound.attr("kwargs"))) {
    const auto word = name.cast<std::string>();
    by_name_.emplace_back(word, argument_of(value, concat("argument ", word)));
  }
}

py::object Arguments::pass(py::handle forward, const Tensors& tensors) const {
  if (tensors.size() != tensors_.size()) {
    fail_type("module: number of tensors of a hook before forward is ", tensors.size(),
              ", expected ", tensors_.size(), ", those of the call");
  }
  auto object_of_argument = [next = tensors.begin()](const py::object& argument) mutable {
    return argument ? argument : py::cast(*next++);
  };
  py::tuple given(by_position_.size());
  for (size_t i = 0; i < by_position_.size(); ++i) given[i] = object_of_argument(by_position_[i]);
  py::dict named;
  for (const auto& [name, argument] : by_name_) {
    named[py::str(name)] = object_of_argument(argument);
  }
  return forward(*given, **named);
}

ArgumentsPtr kept_arguments(py::handle forward, const py::args& given, const py::kwargs& named) {
  return {new Arguments(forward, given, named), [](const Arguments* dropped) {
            if (is_ending()) return;
            const Locked lock;
            delete dropped;
          }};
}

std::optional<Tensors> only_tensors(const py::args& given) {
  Tensors tensors;
  for (const py::handle value : given) {
    auto tensor = tensor_of(value);
    if (!tensor) return std::nullopt;
    tensors.push_back(*std::move(tensor));
  }
  return tensors;
}

Tensors run_written(const py::object& self, const py::object& forward,
                    const ArgumentsPtr& arguments, const Tensors& inputs) {
  const std::string what = concat(Py_TYPE(self.ptr())->tp_name, ": forward");
  if (arguments) return tensors_of(what, arguments->pass(forward, inputs));
  return tensors_of(what, forward(*for_python(inputs)));
}

namespace {

/// The owner of a module's value; null before the module's __init__ has run.
const py::smart_holder* holder_of(py::handle module) {
  const auto held = held_by(module);
  return held && held->holder_constructed() ? &held->holder<py::smart_holder>() : nullptr;
}

int visit_children(PyObject* self, visitproc visit, void* arg);

/// Returns true when Python itself has visited the attributes, which it does when a derived class
/// stores them differently from the bound class.
bool are_attributes_visited(PyObject* self) {
  const PyTypeObject* bound = Py_TYPE(self);
  while (bound->tp_traverse != visit_children) bound = bound->tp_base;
  return Py_TYPE(self)->tp_dictoffset != bound->tp_dictoffset;
}

/// Visits the attributes, and the references to children that only this module holds.
int visit_children(PyObject* self, visitproc visit, void* arg) {
  if (are_attributes_visited(self)) {
    Py_VISIT(Py_TYPE(self));
  } else if (const int stop = py::detail::pybind11_traverse(self, visit, arg)) {
    return stop;
  }
  // Otherwise other owners hold the children, too.
  const py::smart_holder* holder = holder_of(self);
  if (!holder || holder->vptr_is_external_shared_ptr || holder->vptr.use_count() != 1) return 0;
  for (const auto& [name, child] : py::handle(self).cast<Module&>().children()) {
    const auto* reference = std::get_deleter<HeldObject>(child);
    if (reference && child.use_count() == 1) Py_VISIT(reference->object);
  }
  return 0;
}

}  // namespace

void HeldObject::operator()(const void*) const { drop(object); }

std::shared_ptr<Module> kept_with_object(const char* what, const py::object& module) {
  if (!py::isinstance<Module>(module)) {
    fail_type(what, ": it is a ", type_of(module), ", expected a Module");
  }
  if (!is_made_in_python(module)) return module.cast<std::shared_ptr<Module>>();
  return {&module.cast<Module&>(), HeldObject{py::object(module).release().ptr()}};
}

bool is_made_in_python(py::handle module) {
  const py::smart_holder* holder = holder_of(module);
  return holder && !holder->vptr_is_external_shared_ptr;
}

py::custom_type_setup with_visible_children() {
  return py::custom_type_setup(
      [](PyHeapTypeObject* type) { type->ht_type.tp_traverse = visit_children; });
}

namespace {

constexpr const char* kHooks = "_hooks";
constexpr const char* kBefore = "hook before forward";
constexpr const char* kAfter = "hook after forward";

Callable weak_reference(py::handle object) {
  return Callable{py::function(py::weakref(object, py::handle()))};
}

/// Finds an object without keeping it, or None when it is gone. Called with the lock held.
using Finder = std::function<py::object()>;

/// Finds the Python object of a module; for a part made by C++, a new object if the old one is
/// gone.
Finder finder_of(const ModuleObject& module) {
  if (is_made_in_python(module)) return [object = weak_reference(module)] { return object(); };
  auto* const part = &module.cast<Module&>();
  const auto tree = module.cast<std::shared_ptr<Module>>();
  // A tree whose class is written in Python is kept by its object, not by the pointer.
  if (const auto* kept = std::get_deleter<HeldObject>(tree)) {
    return [object = weak_reference(kept->object), part] {
      const py::object found = object();
      return found.is_none() ? found : py::cast(part_of(tree_of<Module>(found), part));
    };
  }
  return [weak = std::weak_ptr(tree), part]() -> py::object {
    const auto found = weak.lock();
    return found ? py::cast(part_of(found, part)) : py::none();
  };
}

/// Finds hook `which` of a number, where the module's object stores it and Python's collector sees
/// it.
Finder finder_of_hook(const Callable& object, size_t number, size_t which) {
  return [=] {
    const py::object module = object();
    if (module.is_none()) return module;
    const py::dict hooks = module.attr(kHooks);
    const py::int_ key(number);
    return hooks.contains(key) ? py::object(py::tuple(hooks[key])[which]) : py::none();
  };
}

/// The tensors after a hook: the result of `call`, or `came` when that is None.
template <class Call>
Tensors passed(const char* what, const Finder& found, const Tensors& came, const Call& call) {
  const Locked lock;
  const py::object hook = found();
  if (hook.is_none()) return came;
  const py::object returned = call(hook);
  return returned.is_none() ? came : tensors_of(what, returned);
}

/// Makes C++ hooks that call Python hooks, with the module if there is one.
ModuleHooks made_hooks(const Finder& self, const Finder& before, const Finder& after) {
  ModuleHooks hooks;
  if (before) {
    hooks.before = [self, before](const Tensors& inputs) {
      return passed(kBefore, before, inputs, [&](const py::object& hook) -> py::object {
        return self ? hook(self(), for_python(inputs)) : hook(*for_python(inputs));
      });
    };
  }
  if (after) {
    hooks.after = [self, after](const Tensors& inputs, const Tensors& outputs) {
      return passed(kAfter, after, outputs, [&](const py::object& hook) -> py::object {
        return self ? hook(self(), for_python(inputs), one_or_all(outputs))
                    : hook(*for_python(outputs));
      });
    };
  }
  return hooks;
}

}  // namespace

void HooksOfPython::remove() {
  hooks.remove();
  const py::object module = object ? object() : py::none();
  if (!module.is_none()) module.attr(kHooks).attr("pop")(number, py::none());
}

HooksOfPython add_hooks(const ModuleObject& module, const py::object& before,
                        const py::object& after, bool of_module) {
  static std::atomic<size_t> next = 0;
  const bool is_stored = is_made_in_python(module);
  const size_t number = is_stored ? next++ : 0;
  const Callable object = is_stored ? weak_reference(module) : Callable();
  const py::object given[2] = {before, after};
  Finder found[2];
  for (size_t i : {0, 1}) {
    if (given[i].is_none()) continue;
    if (!PyCallable_Check(given[i].ptr())) {
      fail_type("hook: it is a ", type_of(given[i]), ", expected a function");
    }
    if (is_stored) {
      found[i] = finder_of_hook(object, number, i);
    } else {
      // C++ keeps the hook of a part without a Python object.
      found[i] = [kept = Callable(py::function(given[i]))] { return kept.function(); };
    }
  }
  if (is_stored) {
    const py::dict attributes = module.attr("__dict__");
    if (!attributes.contains(kHooks)) attributes[kHooks] = py::dict();
    attributes[kHooks][py::int_(number)] = py::make_tuple(before, after, of_module);
  }
  const Finder self = of_module ? finder_of(module) : Finder();
  return {module.cast<Module&>().add_hooks(made_hooks(self, found[0], found[1])), object, number};
}

}  // namespace weft::python
