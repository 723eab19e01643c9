// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "python/bindings/casters.h"

namespace weft::python {

// Functions by name, and functions of two operands, of which one may be a number.

using TensorFunction = Tensor (*)(const Tensor&, const Tensor&);

/// A function as Python knows it; its text shows the rule of `op`, by default the op of its name.
template <class Function> struct NamedFunction {
  const char* name;
  Function function;
  const char* text;
  const char* op = name;
};

/// `function` of both as tensors. TypeError when both are numbers.
Tensor of_operands(const char* what, TensorFunction function, const Operand& a, const Operand& b);

Tensor add_operands(const Operand& a, const Operand& b);
Tensor subtract_operands(const Operand& a, const Operand& b);
Tensor multiply_operands(const Operand& a, const Operand& b);
Tensor divide_operands(const Operand& a, const Operand& b);
Tensor pow_operands(const Operand& a, const Operand& b);

}  // namespace weft::python
