// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/bindings.h"

#include <functional>
#include <utility>

#include "python/bindings/fields.h"
#include "weft/ops.h"
#include "weft/torch.h"

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
    {"signbit", signbit, "True where the sign is negative, also of -0 and NaN: bool"},
    {"logical_not", logical_not, "True where x is zero: bool"},
    {"isfinite", isfinite, "True where x is neither infinite nor NaN: bool"},
    {"isinf", isinf, "True where x is infinite: bool"},
    {"isnan", isnan, "True where x is NaN: bool"},
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
    {"isposinf", isposinf, "True where x is inf: bool", "isinf"},
    {"isneginf", isneginf, "True where x is -inf: bool", "isinf"},
    {"erfc", erfc, "1 - erf(x), accurate for large x"},
    {"erfinv", erfinv, "The inverse of erf; NaN outside [-1, 1]"},
    {"lgamma", lgamma, "log |gamma(x)|"},
    {"digamma", digamma, "The derivative of lgamma", "polygamma"},
    {"i0", i0, "The modified Bessel function of the first kind of order 0", "bessel_i"},
    {"i1", i1, "The modified Bessel function of the first kind of order 1", "bessel_i"},
    {"matrix_exp", matrix_exp, "The sum of x^k / k! of square matrices", "matmul"},
};

using TensorFunction = Tensor (*)(const Tensor&, const Tensor&);
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
    {"logical_and", logical_and, "True where neither is zero: bool"},
    {"logical_or", logical_or, "True where one is not zero: bool"},
    {"logical_xor", logical_xor, "True where just one is not zero: bool"},
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

[[noreturn]] void fail_numbers(const char* what) {
  fail(what, ": both operands are numbers, expected at least one tensor");
}

/// `function` of both as tensors.
Tensor of_operands(const char* what, TensorFunction function, const Operand& a, const Operand& b) {
  if (!a.is_number() && !b.is_number()) [[likely]]
    return function(a.tensor, b.tensor);
  if (a.is_number() && b.is_number()) fail_numbers(what);
  if (a.is_number()) return function(next_to(b.tensor, a), b.tensor);
  return function(a.tensor, next_to(a.tensor, b));
}

/// The same without making a tensor of a number.
template <class Function> Tensor with_number(const char* what, const Operand& a, const Operand& b) {
  constexpr Function kFunction;
  if (a.is_number() && b.is_number()) fail_numbers(what);
  if (a.is_number()) return kFunction(a.number, b.tensor);
  return b.is_number() ? kFunction(a.tensor, b.number) : kFunction(a.tensor, b.tensor);
}

struct Power {
  template <class A, class B> Tensor operator()(const A& a, const B& b) const { return pow(a, b); }
};

using OfOperands = Tensor (*)(const char* what, const Operand&, const Operand&);
constexpr NamedFunction<OfOperands> kArithmetic[] = {
    {"add", with_number<std::plus<>>, "x1 + x2; shapes broadcast from the right, dtypes promote"},
    {"subtract", with_number<std::minus<>>, "x1 - x2; shapes broadcast, dtypes promote", "sub"},
    {"multiply", with_number<std::multiplies<>>, "x1 * x2; shapes broadcast, dtypes promote",
     "mul"},
    {"divide", with_number<std::divides<>>, "x1 / x2, floating; shapes broadcast, dtypes promote",
     "div"},
    {"pow", with_number<Power>,
     "x1 ** x2. Integers wrap, and a negative exponent gives the integer part"},
};

/// other * alpha, in the dtype that a tensor and `input` promote to.
Operand scaled(const char* what, const Operand& input, const Operand& other, const Number& alpha) {
  constexpr auto kComplex = Number::Kind::complex;
  if (alpha.kind != kComplex && alpha.value == 1) return other;
  if (!other.is_number()) {
    if (input.is_number()) return mul(other.tensor, alpha);
    const DType dtype = promote(input.tensor.dtype(), other.tensor.dtype());
    return mul(cast(other.tensor, dtype), alpha);
  }
  if (other.number.kind == kComplex || alpha.kind == kComplex) {
    const auto whole = [](const Number& x) { return std::complex(x.value, x.imaginary); };
    return Number(whole(other.number) * whole(alpha));
  }
  constexpr auto kFloating = Number::Kind::floating;
  const double product = other.number.value * alpha.value;
  if (other.number.kind == kFloating || alpha.kind == kFloating) return Number(product);
  int64_t whole = 0;
  if (__builtin_mul_overflow(other.number.bits, alpha.bits, &whole)) {
    fail(what, ": other * alpha is ", product, ", expected one of 64 bits; make a tensor of it");
  }
  return Number(whole);
}

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
  fail_type("clip: a bound is a ", type_of(given), ", expected a Tensor or a number",
            conversion_of(given));
}

}  // namespace

void bind_elementwise(py::module_& m) {
  for (const auto& f : kArithmetic) {
    def(m, concat(f.name, "(x1, x2)"), with_rule(f.op, f.text),
        [name = f.name, function = f.function](const Operand& a, const Operand& b) {
          return function(name, a, b);
        });
  }
  for (const auto& f : {kArithmetic[0], kArithmetic[1]}) {
    const char* text = f.op == std::string_view("add")
                           ? "input + alpha * other; as `weft.add`"
                           : "input - alpha * other; as `weft.subtract`";
    def(m, concat("_torch_", f.name, "(input, other, *, alpha=1)"), text,
        [f](const Operand& a, const Operand& b, const Number& alpha) {
          return f.function(f.name, a, scaled(f.name, a, b, alpha));
        });
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

template <TensorFunction kFunction>
Tensor of_tensors(const char* what, const Operand& a, const Operand& b) {
  return of_operands(what, kFunction, a, b);
}

using OfOperand = const Tensor& (*)(const Tensor&, const Operand&);

/// x OP y, y OP x, and x OP= y, which is a method too.
struct Operator {
  const char* name;
  OfOperands function;
  OfOperand in_place;
  const char* method = nullptr;
};
constexpr Operator kOperators[] = {
    {"add", with_number<std::plus<>>, add_},
    {"sub", with_number<std::minus<>>, sub_},
    {"mul", with_number<std::multiplies<>>, mul_, "mul_"},
    {"truediv", with_number<std::divides<>>, div_, "div_"},
    {"pow", with_number<Power>, pow_, "pow_"},
    {"floordiv", of_tensors<floor_divide>, floor_divide_, "floor_divide_"},
    {"mod", of_tensors<remainder>, remainder_, "remainder_"},
    {"and", of_tensors<bitwise_and>, bitwise_and_, "bitwise_and_"},
    {"or", of_tensors<bitwise_or>, bitwise_or_, "bitwise_or_"},
    {"xor", of_tensors<bitwise_xor>, bitwise_xor_, "bitwise_xor_"},
    {"lshift", of_tensors<bitwise_left_shift>, bitwise_left_shift_, "bitwise_left_shift_"},
    {"rshift", of_tensors<bitwise_right_shift>, bitwise_right_shift_, "bitwise_right_shift_"},
};

using OfItself = const Tensor& (*)(const Tensor&);
constexpr std::pair<const char*, OfItself> kOfItself[] = {
    {"neg_", neg_},     {"abs_", abs_},   {"sign_", sign_},   {"square_", square_},
    {"relu_", relu_},   {"exp_", exp_},   {"log_", log_},     {"sqrt_", sqrt_},
    {"rsqrt_", rsqrt_}, {"tanh_", tanh_}, {"silu_", silu_},   {"sigmoid_", sigmoid_},
    {"floor_", floor_}, {"ceil_", ceil_}, {"trunc_", trunc_}, {"round_", round_},
    {"zero_", zero_},
};

}  // namespace

/// The operators; a number or tensor on the other side, NotImplemented for anything else. Dtypes
/// promote as in PyTorch.
void bind_operators(py::class_<Tensor>& tensor) {
  const auto bind = [&](const std::string& name, auto function) {
    tensor.def(name.c_str(), function, Released(), py::is_operator());
  };
  const auto called = [](OfOperands function, const Operand& a, const Operand& b) {
    const bool may_differ = !a.is_number() && !b.is_number();
    if (!may_differ || a.tensor.dtype() == b.tensor.dtype()) [[likely]]
      return function("operator", a, b);
    Tensor both[] = {a.tensor, b.tensor};
    torch::promote_by_dims(both);
    return function("operator", both[0], both[1]);
  };
  const auto bind_left = [&](const std::string& name, OfOperands function) {
    bind(name, [=](const Tensor& a, const Operand& b) { return called(function, a, b); });
  };
  constexpr const char* kInPlace = "The operator, or the function, in place";
  for (const Operator& f : kOperators) {
    bind_left(concat("__", f.name, "__"), f.function);
    bind(concat("__r", f.name, "__"),
         [called, function = f.function](const Tensor& a, const Operand& b) {
           return called(function, b, a);
         });
    const auto change = [function = f.in_place](const py::object& self, const Operand& other) {
      return changed(self, [&](const Tensor& x) { function(x, other); });
    };
    tensor.def(concat("__i", f.name, "__").c_str(), change, py::is_operator());
    if (f.method) bind_change(tensor, concat(f.method, "(other)"), f.in_place, kInPlace);
  }
  bind_change(tensor, "maximum_(other)", maximum_, kInPlace);
  bind_change(tensor, "minimum_(other)", minimum_, kInPlace);
  bind_left("__eq__", of_tensors<equal>);
  bind_left("__ne__", of_tensors<not_equal>);
  bind_left("__lt__", of_tensors<less>);
  bind_left("__le__", of_tensors<less_equal>);
  bind_left("__gt__", of_tensors<greater>);
  bind_left("__ge__", of_tensors<greater_equal>);
  bind("__matmul__", &product_of);
  bind("__rmatmul__", [](const Tensor& a, const Tensor& b) { return product_of(b, a); });
  tensor.def("__invert__", &bitwise_invert, Released())
      .def("__neg__", &neg, Released())
      .def("__abs__", &abs, Released())
      .def("__pos__", [](const Tensor& a) { return a; });
  for (const auto& [name, function] : {std::pair("add_", &add_), std::pair("sub_", &sub_)}) {
    def(tensor, concat(name, "(other, *, alpha=1)"),
        "Changes it in place, with other * alpha; see the operator",
        [name, function](const py::object& self, const Operand& other, const Operand& alpha) {
          if (!alpha.is_number()) fail_type(name, ": alpha is a tensor, expected a number");
          return changed(
              self, [&](const Tensor& x) { function(x, scaled(name, x, other, alpha.number)); });
        });
  }
  for (const auto& [name, function] : kOfItself) {
    bind_change(tensor, name, function, "Every element becomes the function of itself, in place");
  }
  bind_change(tensor, "clamp_(min=None, max=None)", clamp_,
              "Elements below min become min, those above max become max, in place");
  bind_change(tensor, "addcmul_(tensor1, tensor2, *, value=1)", addcmul_,
              "Adds value * tensor1 * tensor2 in place");
  bind_change(tensor, "addcdiv_(tensor1, tensor2, *, value=1)", addcdiv_,
              "Adds value * tensor1 / tensor2 in place");
  bind_change(tensor, "lerp_(end, weight)", lerp_, "Adds weight * (end - self) in place");
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
