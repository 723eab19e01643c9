// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <optional>

namespace weft::python {

namespace py = pybind11;

// The interpreter's lock. A thread that asks for it while the interpreter ends is to end too, by an
// unwinding that C++ does not survive: such a thread stops where it is instead, until the process
// has ended.

/// Without the lock for its life: around whatever may compute or wait. It touches no Python object.
class Unlocked {
 public:
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

/// With the lock for its life, on whatever thread.
class Locked {
 public:
  Locked();
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  std::optional<py::gil_scoped_acquire> lock_;
};

/// Of a bound function: all of it runs without the lock.
using Released = py::call_guard<Unlocked>;

/// What `function` gives, run without the lock.
template <class Function>
auto released(Function&& function) {
  const Unlocked unlocked;
  return function();
}

/// Calls `wait(work)` without the lock, whether the calling thread has it or not: for
/// `wait_in_destructors_by`, as Python destroys what waits.
void wait_unlocked(void (*wait)(void*), void* work);

/// Whether the interpreter ends, or has ended.
bool is_ending();

}  // namespace weft::python
