// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/callable.h"

#include "python/bindings/lock.h"

namespace weft::python {

void drop(PyObject* object) {
  if (is_ending()) return;
  const Locked lock;
  Py_DECREF(object);
}

Callable::Callable(py::function function)
    : function_(new py::function(std::move(function)), [](py::function* kept) {
        PyObject* object = kept->release().ptr();
        delete kept;
        drop(object);
      }) {}

}  // namespace weft::python
