// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "python/bindings/casters.h"
#include "weft/extend/op.h"

namespace weft::python {

inline constexpr const char* kOwnOpDoc =
    "A custom op. `rule` is in factor notation ('... m k, ... k n -> ... m n'). "
    "forward(call, *operands) computes one device's part: it gets new NumPy arrays "
    "(bfloat16 as float32) and returns one array a result, of the shapes that "
    "call.result_shapes says. `call` also has structure, values, operand_boxes and result_boxes "
    "((offset, shape) of this part in the whole), operand_wholes, result_wholes (shapes) and "
    "counts_here (False where a number added must not count, being added on another rank). "
    "backward(call, *gradients) gets the results' gradients as Tensors (None where nothing depends "
    "on one) and returns one Tensor or None an operand; `call` has operands, results (with "
    "saves_outputs), structure and values. `linear`: sets of operands in which it is jointly "
    "linear. `dtype`: of the results; that of operand 0 unless given. `dtypes`: those that "
    "operands "
    "may have; any unless given. Without backward a gradient that reaches the op raises a "
    "ValueError; with differentiable=False it stops there, as it does at results of integers. "
    "`samples`: operand shapes of the calls that weft.testing runs";

Op own_op(const std::string& name, const std::string& rule, const py::function& forward,
          const py::object& backward, const std::vector<std::vector<int>>& linear,
          std::optional<DType> dtype, bool saves_outputs, const std::vector<DType>& dtypes,
          std::optional<bool> differentiable, const std::vector<std::vector<Shape>>& samples);

}  // namespace weft::python
