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

std::function<void(const std::string&)> receiver(py::function function, const char* where) {
  return [kept = Callable(std::move(function)), where](const std::string& sentence) {
    if (is_ending()) return;
    const Locked lock;
    try {
      kept(sentence);
    } catch (py::error_already_set& raised) {
      raised.discard_as_unraisable(where);
    }
  };
}

}  // namespace weft::python
