// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/elementwise.h"

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "python/bindings/operands.h"
#include "python/bindings/rule_text.h"

namespace weft::python {

namespace {

constexpr OfOne kOfOne[] = {
    {"negative", neg, "neg", "-x"},
    {"abs", abs, "abs", "|x|, element by element"},
    {"exp", exp, "exp", "e to the power of x"},
    {"log", log, "log", "The natural logarithm of x"},
    {"sqrt", sqrt, "sqrt", "The square root of x"},
    {"rsqrt", rsqrt, "rsqrt", "1 / sqrt(x)"},
    {"tanh", tanh, "tanh", "The hyperbolic tangent of x"},
    {"sigmoid", sigmoid, "sigmoid", "1 / (1 + exp(-x))"},
    {"silu", silu, "silu", "x * sigmoid(x)"},
    {"gelu", gelu, "gelu", "x / 2 * (1 + erf(x / sqrt(2)))"},
    {"square", square, "square", "x * x"},
    {"sign", sign, "sign", "-1, 0 or 1; NaN for NaN"},
    {"erf", erf, "erf", "The error function of x"},
    {"relu", relu, "relu", "max(x, 0); its gradient at 0 is 0"},
};

constexpr OfTwo kOfTwo[] = {
    {"maximum", maximum, "maximum", "The larger of x1 and x2, element by element"},
    {"minimum", minimum, "minimum", "The smaller of x1 and x2, element by element"},
    {"equal", equal, "equal", "x1 == x2, element by element, as bool"},
    {"not_equal", not_equal, "not_equal", "x1 != x2, element by element, as bool"},
    {"less", less, "less", "x1 < x2, element by element, as bool"},
    {"less_equal", less_equal, "less_equal", "x1 <= x2, element by element, as bool"},
    {"greater", greater, "less", "x1 > x2, element by element, as bool"},
    {"greater_equal", greater_equal, "less_equal", "x1 >= x2, element by element, as bool"},
};

/// a where the condition holds, b elsewhere; numbers beside the other, or beside the condition.
Tensor where_operands(const Tensor& condition, const Operand& a, const Operand& b) {
  const auto lifted = [&](const Operand& x, const Operand& other) {
    if (!x.is_number()) return x.tensor;
    if (!other.is_number()) return number_like(other.tensor, x.number);
    return number_like(cast(condition, DType::f32), x.number);
  };
  return where(condition, lifted(a, b), lifted(b, a));
}

}  // namespace

void bind_elementwise(py::module_& m) {
  const auto bind = [&](const char* name, Tensor (*function)(const Operand&, const Operand&),
                        const char* op, const char* text) {
    m.def(name, function, Released(), py::arg("x1"), py::arg("x2"), with_rule(op, text));
  };
  bind("add", add_operands, "add", "x1 + x2; shapes broadcast from the right, dtypes promote");
  bind("subtract", subtract_operands, "sub", "x1 - x2; shapes broadcast, dtypes promote");
  bind("multiply", multiply_operands, "mul", "x1 * x2; shapes broadcast, dtypes promote");
  bind("divide", divide_operands, "div", "x1 / x2, floating; shapes broadcast, dtypes promote");
  bind_functions(m, kOfOne);
  bind_functions(m, kOfTwo);
  m.def("where", &where_operands, Released(), py::arg("condition"), py::arg("x1"), py::arg("x2"),
        with_rule("where", "x1 where `condition` (bool) holds, x2 elsewhere"));
  m.def("astype", &cast, Released(), py::arg("x"), py::arg("dtype"),
        with_rule("cast", "The same values as `dtype`; floating to integer rounds towards zero"));
  m.def(
      "on_device", [](const Tensor& x, Device device) { return x.to(device); }, Released(),
      py::arg("x"), py::arg("device"),
      "The same layout with this rank's part on `device`; x itself when it is there");
}

}  // namespace weft::python
