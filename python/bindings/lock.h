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

}  // namespace weft::python
