// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/trigonometry.h"

#include "python/bindings/bindings.h"
#include "python/bindings/operands.h"

namespace weft::python {

static constexpr OfOne kTrigonometryOfOne[] = {
    {"sin", sin, "sin", "The sine of x, in radians"},
    {"cos", cos, "cos", "The cosine of x, in radians"},
    {"tan", tan, "tan", "The tangent of x, in radians"},
    {"asin", asin, "asin", "The angle in [-pi/2, pi/2] whose sine is x"},
    {"acos", acos, "acos", "The angle in [0, pi] whose cosine is x"},
    {"atan", atan, "atan", "The angle in [-pi/2, pi/2] whose tangent is x"},
    {"sinh", sinh, "sinh", "The hyperbolic sine of x"},
    {"cosh", cosh, "cosh", "The hyperbolic cosine of x"},
    {"asinh", asinh, "asinh", "The inverse of sinh"},
    {"acosh", acosh, "acosh", "The inverse of cosh; NaN below 1"},
    {"atanh", atanh, "atanh", "The inverse of tanh; NaN beyond 1"},
};

static constexpr OfTwo kTrigonometryOfTwo[] = {
    {"atan2", atan2, "atan2", "The angle of the point (x2, x1) in [-pi, pi]"},
    {"hypot", hypot, "hypot", "sqrt(x1^2 + x2^2), without overflow on the way"},
};

void bind_trigonometry(py::module_& m) {
  bind_functions(m, kTrigonometryOfOne);
  bind_functions(m, kTrigonometryOfTwo);
}

}  // namespace weft::python
