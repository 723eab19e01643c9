// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/logic.h"

#include "python/bindings/bindings.h"
#include "python/bindings/operands.h"

namespace weft::python {

static constexpr OfOne kLogicOfOne[] = {
    {"logical_not", logical_not, "logical_not", "Whether x is zero: bool"},
    {"isfinite", isfinite, "isfinite", "Whether x is neither infinite nor NaN: bool"},
    {"isinf", isinf, "isinf", "Whether x is infinite: bool"},
    {"isnan", isnan, "isnan", "Whether x is NaN: bool"},
    {"bitwise_invert", bitwise_invert, "bitwise_invert", "~x, of integers and bool"},
};

static constexpr OfTwo kLogicOfTwo[] = {
    {"logical_and", logical_and, "logical_and", "Whether neither is zero: bool"},
    {"logical_or", logical_or, "logical_or", "Whether one is not zero: bool"},
    {"logical_xor", logical_xor, "logical_xor", "Whether just one is not zero: bool"},
    {"bitwise_and", bitwise_and, "bitwise_and", "x1 & x2, of integers and bool"},
    {"bitwise_or", bitwise_or, "bitwise_or", "x1 | x2, of integers and bool"},
    {"bitwise_xor", bitwise_xor, "bitwise_xor", "x1 ^ x2, of integers and bool"},
    {"bitwise_left_shift", bitwise_left_shift, "bitwise_left_shift", "x1 << x2, of integers"},
    {"bitwise_right_shift", bitwise_right_shift, "bitwise_right_shift", "x1 >> x2, of integers"},
};

void bind_logic(py::module_& m) {
  bind_functions(m, kLogicOfOne);
  bind_functions(m, kLogicOfTwo);
}

}  // namespace weft::python
