// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/module_cycles.h"

#include <optional>

#include "python/bindings/callable.h"
#include "weft/error.h"

namespace weft::python {

namespace {

/// The reference that a parent holds to a child's Python object.
struct HeldObject {
  PyObject* object;
  void operator()(Module*) const { drop(object); }
};

/// The C++ part of an object; empty during construction, when the collector may already run.
std::optional<py::detail::value_and_holder> held_by(py::handle module) {
  auto* instance = reinterpret_cast<py::detail::instance*>(module.ptr());
  const bool has_room = instance->simple_layout || instance->nonsimple.values_and_holders;
  if (!has_room) return std::nullopt;
  const py::detail::value_and_holder held = instance->get_value_and_holder();
  if (!held.holder_constructed()) return std::nullopt;
  return held;
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
  const auto held = held_by(self);
  const bool is_owner =
      held && is_made_in_python(self) && held->holder<py::smart_holder>().vptr.use_count() == 1;
  if (!is_owner) return 0;
  py::detail::make_caster<Module> module;
  if (!module.load(self, false)) return 0;
  for (const auto& [name, child] : py::detail::cast_op<Module&>(module).children()) {
    const auto* reference = std::get_deleter<HeldObject>(child);
    if (reference && child.use_count() == 1) Py_VISIT(reference->object);
  }
  return 0;
}

}  // namespace

std::shared_ptr<Module> kept_with_object(const char* what, const py::object& module) {
  if (!py::isinstance<Module>(module)) {
    throw py::type_error(
        concat(what, ": it is a ", Py_TYPE(module.ptr())->tp_name, ", expected a Module"));
  }
  if (!is_made_in_python(module)) return module.cast<std::shared_ptr<Module>>();
  return {&module.cast<Module&>(), HeldObject{py::object(module).release().ptr()}};
}

bool is_made_in_python(py::handle module) {
  const auto held = held_by(module);
  return held && !held->holder<py::smart_holder>().vptr_is_external_shared_ptr;
}

py::custom_type_setup with_visible_children() {
  return py::custom_type_setup(
      [](PyHeapTypeObject* type) { type->ht_type.tp_traverse = visit_children; });
}

}  // namespace weft::python
