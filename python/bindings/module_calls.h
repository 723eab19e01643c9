// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "python/bindings/casters.h"
#include "weft/module.h"

namespace weft::python {

/// The arguments of a call to a forward written in Python. Its tensors, in the order of forward's
/// parameters, pass through hooks and recomputation like those of any module; other arguments are
/// passed unchanged.
class Arguments {
 public:
  /// Throws TypeError when forward does not accept the arguments, or when one is neither a tensor
  /// nor None, a number or a string.
  Arguments(py::handle forward, const py::args& given, const py::kwargs& named);

  const Tensors& tensors() const { return tensors_; }
  /// Calls forward with these tensors in place of the original ones. Throws TypeError when their
  /// number differs.
  py::object pass(py::handle forward, const Tensors& tensors) const;

 private:
  py::object argument_of(py::handle value, const std::string& what);

  Tensors tensors_;
  /// Null for the next tensor.
  std::vector<py::object> by_position_;
  std::vector<std::pair<std::string, py::object>> by_name_;
};

/// Kept by C++ and destroyed on any thread.
using ArgumentsPtr = std::shared_ptr<const Arguments>;
ArgumentsPtr kept_arguments(py::handle forward, const py::args& given, const py::kwargs& named);

/// Returns the arguments if all are tensors.
std::optional<Tensors> only_tensors(const py::args& given);

/// Calls `forward`, defined by the class of `self`, and returns its result; throws TypeError when
/// that is not made of tensors.
Tensors run_written(const py::object& self, const py::object& forward,
                    const ArgumentsPtr& arguments, const Tensors& inputs);

}  // namespace weft::python
