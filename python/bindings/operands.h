// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "python/bindings/casters.h"

namespace weft::python {

// Functions of two operands, of which one may be a number.

using TensorFunction = Tensor (*)(const Tensor&, const Tensor&);

/// The number as a tensor of no dims that fits beside `tensor`: of its dtype (f32 for a fraction
/// beside integers), over its mesh.
Tensor beside(const Tensor& tensor, double number);

/// `function` of both as tensors. TypeError when both are numbers.
Tensor of_operands(const char* what, TensorFunction function, const Operand& a, const Operand& b);

Tensor add_operands(const Operand& a, const Operand& b);
Tensor subtract_operands(const Operand& a, const Operand& b);
Tensor multiply_operands(const Operand& a, const Operand& b);
Tensor divide_operands(const Operand& a, const Operand& b);

}  // namespace weft::python
