// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/bindings.h"

#include <functional>

#include "python/bindings/fields.h"
#include "weft/ops/algebra.h"
#include "weft/ops/distributions.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/in_place.h"
#include "weft/ops/logic.h"
#include "weft/ops/pointwise.h"
#include "weft/ops/powers.h"
#include "weft/ops/rounding.h"
#include "weft/ops/special.h"
#include "weft/ops/statistics.h"
#include "weft/ops/trigonometry.h"
#include "weft/ops/updates.h"

namespace weft::python {

namespace {

constexpr NamedFunction<Tensor (*)(const Tensor&)> kOfOne[] = {
    {"negative", neg, "-x", "neg"},
    {"abs", abs, "|x|, element by element"},
    {"exp", exp, "e to the power of x"},
    {"log", log, "The natural logarithm of x"},
    {"sqrt", sqrt, "The square root of x"},
    {"rsqrt", rsqrt, "1 / sqrt(x)"},
    {"tanh", tanh, "The hyperbolic tangent of x"},
    {"sigmoid", sigmoid, "1 / (1 + exp(-x))"},
    {"silu", silu, "x * sigmoid(x)"},
    {"gelu_tanh", gelu_tanh, "gelu's approximation by tanh"},
    {"square", square, "x * x"},
    {"sign", sign, "-1, 0 or 1; NaN for NaN"},
    {"erf", erf, "The error function of x"},
    {"relu", relu, "max(x, 0); its gradient at 0 is 0"},
    {"sin", sin, "The sine of x, in radians"},
    {"cos", cos, "The cosine of x, in radians"},
    {"tan", tan, "The tangent of x, in radians"},
    {"asin", asin, "The angle in [-pi/2, pi/2] whose sine is x"},
    {"acos", acos, "The angle in [0, pi] whose cosine is x"},
    {"atan", atan, "The angle in [-pi/2, pi/2] whose tangent is x"},
    {"sinh", sinh, "The hyperbolic sine of x"},
    {"cosh", cosh, "The hyperbolic cosine of x"},
    {"asinh", asinh, "The inverse of sinh"},
    {"acosh", acosh, "The inverse of cosh; NaN below 1"},
    {"atanh", atanh, "The inverse of tanh; NaN beyond 1"},
    {"floor", floor, "The integer below x; the dtype stays"},
    {"ceil", ceil, "The integer above x; the dtype stays"},
    {"trunc", trunc, "The integer of x towards 0; the dtype stays"},
    {"round", round, "The nearest integer, halves to the even one; the dtype stays"},
    {"signbit", signbit, "Whether the sign is negative, also of -0 and NaN: bool"},
    {"logical_not", logical_not, "Whether x is zero: bool"},
    {"isfinite", isfinite, "Whether x is neither infinite nor NaN: bool"},
    {"isinf", isinf, "Whether x is infinite: bool"},
    {"isnan", isnan, "Whether x is NaN: bool"},
    {"bitwise_invert", bitwise_invert, "~x, of integers and bool"},
    {"expm1", expm1, "exp(x) - 1, exact for small x"},
    {"log1p", log1p, "log(1 + x), exact for small x"},
    {"log2", log2, "The logarithm of x to base 2"},
    {"log10", log10, "The logarithm of x to base 10"},
    {"frac", frac, "x - trunc(x)", "sub"},
    {"exp2", exp2, "2 to the power x", "pow"},
    {"sinc", sinc, "sin(pi x) / (pi x), 1 at 0", "sin"},
    {"deg2rad", deg2rad, "Degrees as radians", "mul"},
    {"rad2deg", rad2deg, "Radians as degrees", "mul"},
    {"angle", angle, "0 for positive x, pi for negative ones", "where"},
    {"isposinf", isposinf, "Whether x is inf: bool", "isinf"},
    {"isneginf", isneginf, "Whether x is -inf: bool", "isinf"},
    {"erfc", erfc, "1 - erf(x), accurate for large x"},
    {"erfinv", erfinv, "The inverse of erf; NaN outside [-1, 1]"},
    {"lgamma", lgamma, "log |gamma(x)|"},
    {"digamma", digamma, "The derivative of lgamma", "polygamma"},
    {"i0", i0, "The modified Bessel function of the first kind of order 0", "bessel_i"},
    {"i1", i1, "The modified Bessel function of the first kind of order 1", "bessel_i"},
    {"matrix_exp", matrix_exp, "The sum of x^k / k! of square matrices", "matmul"},
    {"rand_like", rand_like, "Uniform in [0, 1), in shape, dtype and layout of x", "add"},
    {"randn_like", randn_like, "Standard normal, in shape, dtype and layout of x", "add"},
};

constexpr NamedFunction<TensorFunction> kOfTwo[] = {
    {"maximum", maximum, "The larger of x1 and x2, element by element"},
    {"minimum", minimum, "The smaller of x1 and x2, element by element"},
    {"equal", equal, "x1 == x2, element by element, as bool"},
    {"not_equal", not_equal, "x1 != x2, element by element, as bool"},
    {"less", less, "x1 < x2, element by element, as bool"},
    {"less_equal", less_equal, "x1 <= x2, element by element, as bool"},
    {"greater", greater, "x1 > x2, element by element, as bool", "less"},
    {"greater_equal", greater_equal, "x1 >= x2, element by element, as bool", "less_equal"},
    {"atan2", atan2, "The angle of the point (x2, x1) in [-pi, pi]"},
    {"hypot", hypot, "sqrt(x1^2 + x2^2), without overflow on the way"},
    {"floor_divide", floor_divide, "x1 // x2; integers by 0 give 0"},
    {"remainder", remainder, "x1 % x2, with the sign of x2; integers by 0 give 0"},
    {"copysign", copysign, "|x1| with the sign of x2"},
    {"nextafter", nextafter, "The number next to x1 on the way to x2"},
    {"logical_and", logical_and, "Whether neither is zero: bool"},
    {"logical_or", logical_or, "Whether one is not zero: bool"},
    {"logical_xor", logical_xor, "Whether just one is not zero: bool"},
    {"bitwise_and", bitwise_and, "x1 & x2, of integers and bool"},
    {"bitwise_or", bitwise_or, "x1 | x2, of integers and bool"},
    {"bitwise_xor", bitwise_xor, "x1 ^ x2, of integers and bool"},
    {"bitwise_left_shift", bitwise_left_shift, "x1 << x2, of integers"},
    {"bitwise_right_shift", bitwise_right_shift, "x1 >> x2, of integers"},
    {"logaddexp", logaddexp, "log(exp(x1) + exp(x2)), without overflow on the way"},
    {"fmod", fmod, "x1 - trunc(x1 / x2) * x2, which has the sign of x1", "remainder"},
    {"fmax", fmax, "The larger of both; where one is NaN, the other", "maximum"},
    {"fmin", fmin, "The smaller of both; where one is NaN, the other", "minimum"},
    {"heaviside", heaviside, "0 for negative x1, 1 for positive x1, x2 for 0", "where"},
    {"ldexp", ldexp, "x1 * 2^x2", "mul"},
    {"float_power", float_power, "x1 to the power x2, in float64", "pow"},
    {"xlogy", xlogy, "x1 * log(x2), but 0 where x1 is 0 and x2 is not NaN", "mul"},
    {"logaddexp2", logaddexp2, "log2(2^x1 + 2^x2)", "logaddexp"},
    {"inner", inner, "Sums of products over the last dims", "mul"},
    {"kron", kron, "The Kronecker product", "mul"},
    {"igamma", igamma, "The regularised lower incomplete gamma function of x1 from 0 to x2"},
    {"igammac", igammac, "1 - igamma(x1, x2)", "igamma"},
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

[[noreturn]] static void fail_numbers(const char* what) {
  fail(what, ": both operands are numbers, expected at least one tensor");
}

Tensor of_operands(const char* what, TensorFunction function, const Operand& a, const Operand& b) {
  if (!a.is_number() && !b.is_number()) [[likely]]
    return function(a.tensor, b.tensor);
  if (a.is_number() && b.is_number()) fail_numbers(what);
  if (a.is_number()) return function(next_to(b.tensor, a), b.tensor);
  return function(a.tensor, next_to(a.tensor, b));
}

/// Calls Function()(a, b) without making a tensor of a number.
template <class Function>
static Tensor with_number(const char* what, const Operand& a, const Operand& b) {
  if (a.is_number() && b.is_number()) fail_numbers(what);
  if (a.is_number()) return Function()(a.number, b.tensor);
  return b.is_number() ? Function()(a.tensor, b.number) : Function()(a.tensor, b.tensor);
}

using Pow = decltype([](const auto&... of) { return pow(of...); });
const std::array<Arithmetic, 5> kArithmetic = {{
    {"add", "__add__", "__radd__", with_number<std::plus<>>, "add",
     "x1 + x2; shapes broadcast from the right, dtypes promote"},
    {"subtract", "__sub__", "__rsub__", with_number<std::minus<>>, "sub",
     "x1 - x2; shapes broadcast, dtypes promote"},
    {"multiply", "__mul__", "__rmul__", with_number<std::multiplies<>>, "mul",
     "x1 * x2; shapes broadcast, dtypes promote"},
    {"divide", "__truediv__", "__rtruediv__", with_number<std::divides<>>, "div",
     "x1 / x2, floating; shapes broadcast, dtypes promote"},
    {"pow", "__pow__", "__rpow__", with_number<Pow>, "pow",
     "x1 ** x2. Integers wrap, and a negative exponent gives the integer part"},
}};

void bind_elementwise(py::module_& m) {
  for (const Arithmetic& f : kArithmetic) {
    def(m, concat(f.name, "(x1, x2)"), with_rule(f.op, f.text), f.function_of_two());
  }
  for (const auto& f : kOfOne) {
    m.def(f.name, f.function, Released(), "x"_a, with_rule(f.op, f.text));
  }
  for (const auto& f : kOfTwo) {
    def(m, concat(f.name, "(x1, x2)"), with_rule(f.op, f.text),
        [f](const Operand& a, const Operand& b) { return of_operands(f.name, f.function, a, b); });
  }
  def(m, "where(condition, x1, x2)", &where_operands,
      with_rule("where", "x1 where `condition` (bool) holds, x2 elsewhere"));
  def(m, "astype(x, dtype, *, copy=True, device=None)",
      with_rule(
          "cast",
          "The values of x as `dtype`; floating to integer rounds towards zero. Returns x itself "
          "when it already has that dtype and `copy` is False; ValueError for another device"),
      [](const Tensor& x, DType dtype, bool copy, const std::optional<Device>& device) {
        if (device && !(*device == x.device())) {
          fail("astype: the tensor is on ", x.device(), ", expected ", *device, "; move it first");
        }
        return copy && x.dtype() == dtype ? clone(x) : cast(x, dtype);
      });
  def(m, "clone(x)", &clone,
      with_rule("cast", "The same elements in new memory, in the same layout"));
  def(m, "clip(x, min=None, max=None)",
      "x limited to [min, max] (tensors or numbers that broadcast, or None). ValueError for "
      "numbers that exclude all values of an integer dtype",
      [](const Tensor& x, const py::object& low, const py::object& high) {
        const std::optional<Operand> least = bound_of(low), most = bound_of(high);
        return released([&] { return clip(x, least, most); });
      });
  def(m, "positive(x)", "+x: x itself", Held(), [](const Tensor& x) { return x; });
  def(m, "reciprocal(x)", &reciprocal,
      with_rule("div", "1 / x for each element; float32 for integers"));
  def(m, "on_device(x, device)",
      "The same layout with this rank's part on `device`; x itself when it is on `device`",
      [](const Tensor& x, Device device) { return x.to(device); });
}

namespace {

using OfOperand = const Tensor& (*)(const Tensor&, const Operand&);

struct WithOperand {
  /// nullptr where there is none of the two.
  const char* method;
  const char* operation;
  OfOperand function;
};
constexpr WithOperand kWithOperand[] = {
    {"mul_", "__imul__", mul_},
    {"div_", "__itruediv__", div_},
    {"floor_divide_", "__ifloordiv__", floor_divide_},
    {"remainder_", "__imod__", remainder_},
    {"pow_", "__ipow__", pow_},
    {"bitwise_and_", "__iand__", bitwise_and_},
    {"bitwise_or_", "__ior__", bitwise_or_},
    {"bitwise_xor_", "__ixor__", bitwise_xor_},
    {"bitwise_left_shift_", "__ilshift__", bitwise_left_shift_},
    {"bitwise_right_shift_", "__irshift__", bitwise_right_shift_},
    {"maximum_", nullptr, maximum_},
    {"minimum_", nullptr, minimum_},
    {nullptr, "__iadd__", add_},
    {nullptr, "__isub__", sub_},
};

struct OfItself {
  const char* name;
  const Tensor& (*function)(const Tensor&);
};
constexpr OfItself kOfItself[] = {
    {"neg_", neg_},     {"abs_", abs_},   {"sign_", sign_},   {"square_", square_},
    {"relu_", relu_},   {"exp_", exp_},   {"log_", log_},     {"sqrt_", sqrt_},
    {"rsqrt_", rsqrt_}, {"tanh_", tanh_}, {"silu_", silu_},   {"sigmoid_", sigmoid_},
    {"floor_", floor_}, {"ceil_", ceil_}, {"trunc_", trunc_}, {"round_", round_},
    {"zero_", zero_},
};

Operand scaled(const Operand& other, const Number& alpha) {
  if (alpha.value == 1) return other;
  if (!other.is_number()) return mul(other.tensor, alpha);
  constexpr auto kFloating = Number::Kind::floating;
  const double product = other.number.value * alpha.value;
  if (other.number.kind == kFloating || alpha.kind == kFloating) return Number(product);
  int64_t whole = 0;
  if (__builtin_mul_overflow(other.number.bits, alpha.bits, &whole)) {
    fail("add_: other * alpha is ", product, ", expected one of 64 bits; make a tensor of it");
  }
  return Number(whole);
}

/// add_ and sub_: other * alpha.
template <class Class> void bind_scaled(Class& tensor, const char* name, OfOperand function) {
  tensor.def(
      name,
      [function, name](const py::object& self, const Operand& other, const Operand& alpha) {
        if (!alpha.is_number())
          throw py::type_error(concat(name, ": alpha is a tensor, expected a number"));
        return changed(self, [&](const Tensor& x) { function(x, scaled(other, alpha.number)); });
      },
      "other"_a, py::kw_only(), "alpha"_a = 1, "In place, with other * alpha; see the operator");
}

}  // namespace

void bind_in_place(py::class_<Tensor>& tensor) {
  for (const WithOperand& f : kWithOperand) {
    const auto change = [function = f.function](const py::object& self, const Operand& other) {
      return changed(self, [&](const Tensor& x) { function(x, other); });
    };
    if (f.operation) tensor.def(f.operation, change, py::is_operator());
    if (f.method)
      tensor.def(f.method, change, "other"_a, "In place: as the operator, or the function");
  }
  bind_scaled(tensor, "add_", add_);
  bind_scaled(tensor, "sub_", sub_);
  for (const OfItself& f : kOfItself) {
    bind_change(tensor, f.name, f.function,
                "In place: every element becomes the function of itself");
  }
  bind_change(tensor, "clamp_(min=None, max=None)", clamp_,
              "In place: elements below min become min, those above max become max");
  bind_change(tensor, "addcmul_(tensor1, tensor2, *, value=1)", addcmul_,
              "In place: self += value * tensor1 * tensor2");
  bind_change(tensor, "addcdiv_(tensor1, tensor2, *, value=1)", addcdiv_,
              "In place: self += value * tensor1 / tensor2");
  bind_change(tensor, "lerp_(end, weight)", lerp_, "In place: self += weight * (end - self)");
}

void bind_updates(py::module_& m) {
  using Step = AdamWStep;
  const auto adamw = [](const py::object& parameter, const Tensor& mean, const Tensor& square,
                        const Tensor& gradient, const Tensor& scale, const Step& step) {
    changed(parameter, [&](const Tensor& x) { adamw_(x, mean, square, gradient, scale, step); });
  };
  bind_with_fields<Step, py::object, Tensor, Tensor, Tensor, Tensor>(
      m, "adamw_", adamw, "parameter"_a, "m"_a, "v"_a, "gradient"_a, "gradient_scale"_a,
      py::kw_only(), option("lr", &Step::learning_rate), betas_of<Step>(),
      option("eps", &Step::eps), option("weight_decay", &Step::weight_decay),
      option("step", &Step::step),
      with_rule("adamw_",
                "One AdamW step (Loshchilov and Hutter, 2019), in place on parameter, m and v; the "
                "gradient counts times the one element of gradient_scale"));
  def(m, "sgd_(parameter, velocity, gradient, gradient_scale, lr, momentum=0.0, weight_decay=0.0)",
      with_rule("sgd_momentum_",
                "velocity = momentum * velocity + gradient * gradient_scale + weight_decay * "
                "parameter; parameter -= lr * velocity, in place"),
      [](const py::object& parameter, const Tensor& velocity, const Tensor& gradient,
         const Tensor& scale, double lr, double momentum, double weight_decay) {
        changed(parameter, [&](const Tensor& x) {
          sgd_(x, velocity, gradient, scale, lr, momentum, weight_decay);
        });
      });
  bind_change(m, "scale_(x, factor)", &scale_,
              with_rule("scale_", "x *= factor, of one element, in place"));
  bind_change(m, "add_scaled_(x, other, scale, factor=1.0)", &add_scaled_,
              with_rule("add_scaled_",
                        "x += other * scale * factor in place, where scale has one element"));
}

}  // namespace weft::python
