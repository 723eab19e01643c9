// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace weft::python {

namespace py = pybind11;

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

/// Calls a function with each sentence, on any thread. What it raises is reported as unraisable, in
/// `where`.
std::function<void(const std::string&)> receiver(py::function function, const char* where);

/// Releases a reference on any thread; does nothing once the interpreter is ending.
void drop(PyObject* object);

}  // namespace weft::python
