// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/elementwise.h"

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "python/bindings/operands.h"
#include "weft/error.h"
#include "weft/ops/logic.h"
#include "weft/ops/powers.h"
#include "weft/ops/rounding.h"
#include "weft/ops/trigonometry.h"

namespace weft::python {

namespace {

constexpr OfOne kElementwiseOfOne[] = {
    {"negative", neg, "neg", "-x"},
    {"abs", abs, "abs", "|x|, element by element"},
    {"exp", exp, "exp", "e to the power of x"},
    {"log", log, "log", "The natural logarithm of x"},
    {"sqrt", sqrt, "sqrt", "The square root of x"},
    {"rsqrt", rsqrt, "rsqrt", "1 / sqrt(x)"},
    {"tanh", tanh, "tanh", "The hyperbolic tangent of x"},
    {"sigmoid", sigmoid, "sigmoid", "1 / (1 + exp(-x))"},
    {"silu", silu, "silu", "x * sigmoid(x)"},
    {"gelu_tanh", gelu_tanh, "gelu_tanh", "gelu's approximation by tanh"},
    {"square", square, "square", "x * x"},
    {"sign", sign, "sign", "-1, 0 or 1; NaN for NaN"},
    {"erf", erf, "erf", "The error function of x"},
    {"relu", relu, "relu", "max(x, 0); its gradient at 0 is 0"},
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
    {"floor", floor, "floor", "The integer below x; the dtype stays"},
    {"ceil", ceil, "ceil", "The integer above x; the dtype stays"},
    {"trunc", trunc, "trunc", "The integer of x towards 0; the dtype stays"},
    {"round", round, "round", "The nearest integer, halves to the even one; the dtype stays"},
    {"signbit", signbit, "signbit", "Whether the sign is negative, also of -0 and NaN: bool"},
    {"logical_not", logical_not, "logical_not", "Whether x is zero: bool"},
    {"isfinite", isfinite, "isfinite", "Whether x is neither infinite nor NaN: bool"},
    {"isinf", isinf, "isinf", "Whether x is infinite: bool"},
    {"isnan", isnan, "isnan", "Whether x is NaN: bool"},
    {"bitwise_invert", bitwise_invert, "bitwise_invert", "~x, of integers and bool"},
    {"expm1", expm1, "expm1", "exp(x) - 1, exact for small x"},
    {"log1p", log1p, "log1p", "log(1 + x), exact for small x"},
    {"log2", log2, "log2", "The logarithm of x to base 2"},
    {"log10", log10, "log10", "The logarithm of x to base 10"},
};

constexpr OfTwo kElementwiseOfTwo[] = {
    {"maximum", maximum, "maximum", "The larger of x1 and x2, element by element"},
    {"minimum", minimum, "minimum", "The smaller of x1 and x2, element by element"},
    {"equal", equal, "equal", "x1 == x2, element by element, as bool"},
    {"not_equal", not_equal, "not_equal", "x1 != x2, element by element, as bool"},
    {"less", less, "less", "x1 < x2, element by element, as bool"},
    {"less_equal", less_equal, "less_equal", "x1 <= x2, element by element, as bool"},
    {"greater", greater, "less", "x1 > x2, element by element, as bool"},
    {"greater_equal", greater_equal, "less_equal", "x1 >= x2, element by element, as bool"},
    {"atan2", atan2, "atan2", "The angle of the point (x2, x1) in [-pi, pi]"},
    {"hypot", hypot, "hypot", "sqrt(x1^2 + x2^2), without overflow on the way"},
    {"floor_divide", floor_divide, "floor_divide", "x1 // x2; integers by 0 give 0"},
    {"remainder", remainder, "remainder", "x1 % x2, with the sign of x2; integers by 0 give 0"},
    {"copysign", copysign, "copysign", "|x1| with the sign of x2"},
    {"nextafter", nextafter, "nextafter", "The number next to x1 on the way to x2"},
    {"logical_and", logical_and, "logical_and", "Whether neither is zero: bool"},
    {"logical_or", logical_or, "logical_or", "Whether one is not zero: bool"},
    {"logical_xor", logical_xor, "logical_xor", "Whether just one is not zero: bool"},
    {"bitwise_and", bitwise_and, "bitwise_and", "x1 & x2, of integers and bool"},
    {"bitwise_or", bitwise_or, "bitwise_or", "x1 | x2, of integers and bool"},
    {"bitwise_xor", bitwise_xor, "bitwise_xor", "x1 ^ x2, of integers and bool"},
    {"bitwise_left_shift", bitwise_left_shift, "bitwise_left_shift", "x1 << x2, of integers"},
    {"bitwise_right_shift", bitwise_right_shift, "bitwise_right_shift", "x1 >> x2, of integers"},
    {"logaddexp", logaddexp, "logaddexp", "log(exp(x1) + exp(x2)), without overflow on the way"},
};

/// Selects a where the condition holds, b elsewhere. A number is converted to a tensor like the
/// other operand, or like the condition in f32 when both are numbers.
Tensor where_operands(const Tensor& condition, const Operand& a, const Operand& b) {
  const auto lifted = [&](const Operand& x, const Operand& other) {
    return next_to(other.is_number() ? cast(condition, DType::f32) : other.tensor, x);
  };
  return where(condition, lifted(a, b), lifted(b, a));
}

/// A bound of clip: nothing, an int of any size, or another operand.
std::optional<Operand> bound_of(const py::object& given) {
  if (given.is_none()) return std::nullopt;
  Operand bound;
  if (PyLong_CheckExact(given.ptr())) {
    const double value = PyLong_AsDouble(given.ptr());
    if (PyErr_Occurred()) throw py::error_already_set();
    if (value >= 0x1p64 || value < -0x1p63) {
      bound.number = value;
      return bound;
    }
  }
  if (load_operand(given, bound)) return bound;
  throw py::type_error(concat("clip: a bound is a ", Py_TYPE(given.ptr())->tp_name,
                              ", expected a Tensor or a number"));
}

}  // namespace

/// Numbers are used as exponents and bases without making a tensor of them.
Tensor pow_operands(const Operand& a, const Operand& b) {
  if (!a.is_number() && b.is_number()) return pow(a.tensor, b.number);
  if (a.is_number() && !b.is_number()) return pow(a.number, b.tensor);
  return of_operands("pow", pow, a, b);
}

void bind_elementwise(py::module_& m) {
  const auto bind = [&](const char* name, Tensor (*function)(const Operand&, const Operand&),
                        const char* op, const char* text) {
    m.def(name, function, Released(), py::arg("x1"), py::arg("x2"), with_rule(op, text));
  };
  bind("add", add_operands, "add", "x1 + x2; shapes broadcast from the right, dtypes promote");
  bind("subtract", subtract_operands, "sub", "x1 - x2; shapes broadcast, dtypes promote");
  bind("multiply", multiply_operands, "mul", "x1 * x2; shapes broadcast, dtypes promote");
  bind("divide", divide_operands, "div", "x1 / x2, floating; shapes broadcast, dtypes promote");
  bind("pow", pow_operands, "pow",
       "x1 ** x2. Integers wrap, and a negative exponent gives the integer part");
  bind_functions(m, kElementwiseOfOne);
  bind_functions(m, kElementwiseOfTwo);
  m.def("where", &where_operands, Released(), py::arg("condition"), py::arg("x1"), py::arg("x2"),
        with_rule("where", "x1 where `condition` (bool) holds, x2 elsewhere"));
  m.def(
      "astype",
      [](const Tensor& x, DType dtype, bool copy, const std::optional<Device>& device) {
        if (device && !(*device == x.device())) {
          fail("astype: the tensor is on ", x.device(), ", expected ", *device, "; move it first");
        }
        return copy && x.dtype() == dtype ? clone(x) : cast(x, dtype);
      },
      Released(), py::arg("x"), py::arg("dtype"), py::kw_only(), py::arg("copy") = true,
      py::arg("device") = py::none(),
      with_rule("cast",
                "The values of x as `dtype`; floating to integer rounds towards zero. Returns x "
                "itself when it already has that dtype and `copy` is False; ValueError for another "
                "device"));
  m.def("clone", &clone, Released(), py::arg("x"),
        with_rule("cast", "The same elements in new memory, in the same layout"));
  m.def(
      "clip",
      [](const Tensor& x, const py::object& low, const py::object& high) {
        const std::optional<Operand> least = bound_of(low), most = bound_of(high);
        return released([&] { return clip(x, least, most); });
      },
      py::arg("x"), py::arg("min") = py::none(), py::arg("max") = py::none(),
      "x limited to [min, max] (tensors or numbers that broadcast, or None). ValueError for "
      "numbers that exclude all values of an integer dtype");
  m.def(
      "positive", [](const Tensor& x) { return x; }, py::arg("x"), "+x: x itself");
  m.def("reciprocal", &reciprocal, Released(), py::arg("x"),
        with_rule("div", "1 / x for each element; float32 for integers"));
  m.def(
      "on_device", [](const Tensor& x, Device device) { return x.to(device); }, Released(),
      py::arg("x"), py::arg("device"),
      "The same layout with this rank's part on `device`; x itself when it is on `device`");
}

}  // namespace weft::python
