// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/interpreter.h"

#include <cxxabi.h>

#include <chrono>
#include <thread>

#include "python/bindings/casters.h"

namespace weft::python {

[[noreturn]] static void stop() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

Unlocked::Unlocked() : state_(PyEval_SaveThread()) {}

Unlocked::~Unlocked() {
  try {
    PyEval_RestoreThread(state_);
  } catch (abi::__forced_unwind&) {
    stop();
  }
}

Locked::Locked() {
  try {
    lock_.emplace();
  } catch (abi::__forced_unwind&) {
    stop();
  }
}

Locked::~Locked() {
  // Reached while unwinding a thread that lost the lock while it ran Python.
  if (!PyGILState_Check()) stop();
}

void wait_unlocked(void (*wait)(void*), void* work) {
  std::optional<Unlocked> release;
  if (!is_ending() && PyGILState_Check()) release.emplace();
  wait(work);
}

bool is_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return !Py_IsInitialized() || Py_IsFinalizing();
#else
  return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

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

void refuse_object() {
  py::set_error(
      PyExc_TypeError,
      "object: __init__ did not run, expected a class that calls super().__init__() first");
  throw py::error_already_set();
}

void check_value_of_class(py::handle object) {
  PyTypeObject* kind = Py_TYPE(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())));
  static PyTypeObject* const bound = Py_TYPE(py::type::handle_of<Tensor>().ptr());
  if (kind != bound && !PyType_IsSubtype(kind, bound)) return;
  if (!has_value(object)) refuse_object();
}

}  // namespace weft::python
