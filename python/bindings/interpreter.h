// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace weft::python {

namespace py = pybind11;

// The interpreter's lock. Python ends a thread that requests it during shutdown, by an unwinding
// that C++ does not survive. Here such a thread blocks instead, until the process has ended.

/// Releases the lock for a scope that may compute or wait, and that uses no Python object.
class Unlocked {
 public:
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

/// Holds the lock for a scope, on any thread.
class Locked {
 public:
  Locked();
  ~Locked();

 private:
  std::optional<py::gil_scoped_acquire> lock_;
};

/// Releases the lock for the whole call of a bound function.
using Released = py::call_guard<Unlocked>;

/// Calls `function` without the lock and returns its result.
template <class Function> auto released(Function&& function) {
  const Unlocked unlocked;
  return function();
}

/// Calls `wait(work)` without the lock, whether or not the calling thread holds it. Used by
/// `wait_in_destructors_by`, as Python may destroy pending Works.
void wait_unlocked(void (*wait)(void*), void* work);

/// Returns true when the interpreter is ending or has ended.
bool is_ending();

/// A Python callable that C++ keeps, calls and destroys on any thread.
class Callable {
 public:
  Callable() = default;
  explicit Callable(py::function function);
  explicit operator bool() const { return function_ != nullptr; }
  const py::function& function() const { return *function_; }
  /// Called with the interpreter's lock held.
  template <class... Arguments> py::object operator()(Arguments&&... arguments) const {
    return (*function_)(std::forward<Arguments>(arguments)...);
  }

 private:
  std::shared_ptr<py::function> function_;
};

/// A function that calls a Python one, on any thread; an empty one for None.
template <class Result, class... Given>
std::function<Result(Given...)> function_in(const py::object& given) {
  if (given.is_none()) return {};
  return [kept = Callable(py::function(given))](Given... arguments) {
    const Locked lock;
    return kept(arguments...).template cast<Result>();
  };
}

/// Calls a function with each sentence, on any thread. What it raises is reported as unraisable, in
/// `where`.
std::function<void(const std::string&)> receiver(py::function function, const char* where);

/// Releases a reference on any thread; does nothing once the interpreter is ending.
void drop(PyObject* object);

// pybind11 has no public way to ask whether the C++ value of an object exists yet, or who owns it,
// and allocates memory without a value when a function takes an object whose __init__ did not run.
// Only this header reads its instances; nothing changes them.

/// Returns the C++ part of an object of a bound class; nothing while the object is allocated, when
/// the collector may already run.
inline std::optional<py::detail::value_and_holder> held_by(py::handle object) {
  auto* instance = reinterpret_cast<py::detail::instance*>(object.ptr());
  const bool has_room = instance->simple_layout || instance->nonsimple.values_and_holders;
  if (!has_room) return std::nullopt;
  return instance->get_value_and_holder();
}

/// Returns false for an object of a bound class whose __init__ did not run.
inline bool has_value(py::handle object) {
  const auto held = held_by(object);
  return held && held->value_ptr();
}

/// check_value for an object whose class has a metaclass.
void check_value_of_class(py::handle object);

/// Throws TypeError if `object` is of a bound class and its __init__ did not run.
inline void check_value(py::handle object) {
  // Bound classes and those derived from them have pybind11's metaclass, others mostly Python's.
  PyTypeObject* const kind = Py_TYPE(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())));
  if (kind == &PyType_Type) return;
  static PyTypeObject* const bound = py::detail::get_internals().default_metaclass;
  if (kind == bound) {
    const auto* instance = reinterpret_cast<const py::detail::instance*>(object.ptr());
    if (instance->simple_layout && instance->simple_value_holder[0]) return;
  }
  check_value_of_class(object);
}

/// Throws error_already_set with the TypeError of an object without a value.
[[noreturn]] void refuse_object();

/// The C++ value of an object of class T or of a derived class, otherwise null. TypeError if its
/// __init__ did not run.
template <class T> T* bound_value(py::handle object) {
  static const py::handle type = py::type::handle_of<T>();
  if (!PyObject_TypeCheck(object.ptr(), reinterpret_cast<PyTypeObject*>(type.ptr()))) {
    return nullptr;
  }
  if (!has_value(object)) refuse_object();
  return &object.cast<T&>();
}

}  // namespace weft::python
