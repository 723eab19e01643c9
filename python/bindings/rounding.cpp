// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/rounding.h"

#include "python/bindings/bindings.h"
#include "python/bindings/operands.h"

namespace weft::python {

static constexpr OfOne kRoundingOfOne[] = {
    {"floor", floor, "floor", "The integer below x; the dtype stays"},
    {"ceil", ceil, "ceil", "The integer above x; the dtype stays"},
    {"trunc", trunc, "trunc", "The integer of x towards 0; the dtype stays"},
    {"round", round, "round", "The nearest integer, halves to the even one; the dtype stays"},
    {"signbit", signbit, "signbit", "Whether the sign is negative, also of -0 and NaN: bool"},
};

static constexpr OfTwo kRoundingOfTwo[] = {
    {"floor_divide", floor_divide, "floor_divide", "x1 // x2; integers by 0 give 0"},
    {"remainder", remainder, "remainder", "x1 % x2, with the sign of x2; integers by 0 give 0"},
    {"copysign", copysign, "copysign", "|x1| with the sign of x2"},
    {"nextafter", nextafter, "nextafter", "The number next to x1 on the way to x2"},
};

void bind_rounding(py::module_& m) {
  bind_functions(m, kRoundingOfOne);
  bind_functions(m, kRoundingOfTwo);
}

}  // namespace weft::python
