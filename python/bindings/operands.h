// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "python/bindings/casters.h"

namespace weft::python {

// Functions of two operands, of which one may be a number.

using TensorFunction = Tensor (*)(const Tensor&, const Tensor&);

/// `function` of both as tensors. TypeError when both are numbers.
Tensor of_operands(const char* what, TensorFunction function, const Operand& a, const Operand& b);

/// A function of one tensor, as Python knows it; `op` is the op whose rule its text shows.
struct OfOne {
  const char* name;
  Tensor (*function)(const Tensor&);
  const char* op;
  const char* text;
};
/// The same of two operands.
struct OfTwo {
  const char* name;
  TensorFunction function;
  const char* op;
  const char* text;
};
void bind_functions(py::module_& m, std::span<const OfOne> functions);
void bind_functions(py::module_& m, std::span<const OfTwo> functions);

Tensor add_operands(const Operand& a, const Operand& b);
Tensor subtract_operands(const Operand& a, const Operand& b);
Tensor multiply_operands(const Operand& a, const Operand& b);
Tensor divide_operands(const Operand& a, const Operand& b);
Tensor pow_operands(const Operand& a, const Operand& b);

}  // namespace weft::python
