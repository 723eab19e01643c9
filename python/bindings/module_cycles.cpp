// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/modules.h"

#include "python/bindings/instances.h"
#include "python/bindings/lock.h"
#include "weft/error.h"

namespace weft::python {

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
    throw py::type_error(
        concat(what, ": it is a ", Py_TYPE(module.ptr())->tp_name, ", expected a Module"));
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

}  // namespace weft::python
