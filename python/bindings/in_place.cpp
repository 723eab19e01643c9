// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/in_place.h"

#include "python/bindings/bindings.h"
#include "python/bindings/composed.h"
#include "python/bindings/fields.h"
#include "weft/error.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/updates.h"

namespace weft::python {

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
  bind_change(tensor, "clamp_", clamp_,
              "In place: elements below min become min, those above max become max",
              "min"_a = py::none(), "max"_a = py::none());
  const auto tensor1 = "tensor1"_a, tensor2 = "tensor2"_a;
  const auto value = "value"_a = 1;
  bind_change(tensor, "addcmul_", addcmul_, "In place: self += value * tensor1 * tensor2", tensor1,
              tensor2, py::kw_only(), value);
  bind_change(tensor, "addcdiv_", addcdiv_, "In place: self += value * tensor1 / tensor2", tensor1,
              tensor2, py::kw_only(), value);
  bind_change(tensor, "lerp_", lerp_, "In place: self += weight * (end - self)", "end"_a,
              "weight"_a);
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
                "One AdamW step (Loshchilov and Hutter, 2019), in place on parameter, m "
                "and v; the gradient counts times the one element of gradient_scale"));
  m.def(
      "sgd_",
      [](const py::object& parameter, const Tensor& velocity, const Tensor& gradient,
         const Tensor& scale, double lr, double momentum, double weight_decay) {
        changed(parameter, [&](const Tensor& x) {
          sgd_(x, velocity, gradient, scale, lr, momentum, weight_decay);
        });
      },
      "parameter"_a, "velocity"_a, "gradient"_a, "gradient_scale"_a, "lr"_a, "momentum"_a = 0.0,
      "weight_decay"_a = 0.0,
      with_rule("sgd_momentum_",
                "velocity = momentum * velocity + gradient * gradient_scale + "
                "weight_decay * parameter; parameter -= lr * velocity, in place"));
  bind_change(m, "scale_", &scale_, with_rule("scale_", "x *= factor, of one element, in place"),
              "factor"_a);
  bind_change(
      m, "add_scaled_", &add_scaled_,
      with_rule("add_scaled_", "x += other * scale * factor in place, where scale has one element"),
      "other"_a, "scale"_a, "factor"_a = 1.0);
}

}  // namespace weft::python
