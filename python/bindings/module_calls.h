// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "python/bindings/casters.h"
#include "weft/module.h"

namespace weft::python {

/// The arguments of a call of a forward written in Python: its tensors, in the order of forward's
/// parameters, pass hooks and recompute as those of any module; the others come as they are given.
class Arguments {
 public:
  /// TypeError when forward takes no such arguments, or one is neither a tensor nor None, a number
  /// or a string.
  Arguments(py::handle forward, const py::args& given, const py::kwargs& named);

  const Tensors& tensors() const { return tensors_; }
  /// forward with these tensors in the place of those that were given. TypeError when they are
  /// another number of them.
  py::object pass(py::handle forward, const Tensors& tensors) const;

 private:
  using Argument = std::variant<size_t, py::object>;

  Argument argument_of(py::handle value, const std::string& what);

  Tensors tensors_;
  std::vector<Argument> by_position_;
  std::vector<std::pair<std::string, Argument>> by_name_;
};

/// Kept by C++, dropped on any thread.
using ArgumentsPtr = std::shared_ptr<const Arguments>;

/// All of them, where all are tensors.
std::optional<Tensors> only_tensors(const py::args& given);

/// What forward, the own one of `self`, gives; TypeError when that is no tensors.
Tensors run_written(const py::object& self, const py::object& forward,
                    const ArgumentsPtr& arguments, const Tensors& inputs);

}  // namespace weft::python
