// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "weft/export.h"
#include "weft/operand.h"
#include "weft/ops/factories.h"
#include "weft/tensor.h"

namespace weft {

// Each function writes over the elements of `a` and returns `a`, whose shape, dtype, layout and
// memory stay. `b` is moved to a's layout and broadcasts to a's shape. A call on tensors that
// require a gradient is recorded, and `a` becomes its result. std::invalid_argument for a leaf that
// requires a gradient, or a view of one, unless NoGrad is in force; for a result that is larger
// than `a`; and for a result that a's dtype cannot take (floating for integers).

WEFT_API const Tensor& add_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& sub_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& mul_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& div_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& pow_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& floor_divide_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& remainder_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& maximum_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& minimum_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& bitwise_and_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& bitwise_or_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& bitwise_xor_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& bitwise_left_shift_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& bitwise_right_shift_(const Tensor& a, const Operand& b);
/// Elements below `low` become `low`, those above `high` become `high`.
WEFT_API const Tensor& clamp_(const Tensor& a, const std::optional<Operand>& low,
                              const std::optional<Operand>& high = {});
/// a += value * b * c, a += value * b / c, and a += weight * (end - a).
WEFT_API const Tensor& addcmul_(const Tensor& a, const Tensor& b, const Tensor& c,
                                const Number& value = 1);
WEFT_API const Tensor& addcdiv_(const Tensor& a, const Tensor& b, const Tensor& c,
                                const Number& value = 1);
WEFT_API const Tensor& lerp_(const Tensor& a, const Tensor& end, const Operand& weight);

/// Writes `b` over the elements of `a` that `part_of(a)`, a view, shows. Recorded as the functions
/// above; `b` may be that view itself, changed in place before.
WEFT_API void assign_(const Tensor& a, const std::function<Tensor(const Tensor&)>& part_of,
                      const Operand& b);

WEFT_API const Tensor& neg_(const Tensor& a);
WEFT_API const Tensor& abs_(const Tensor& a);
WEFT_API const Tensor& sign_(const Tensor& a);
WEFT_API const Tensor& square_(const Tensor& a);
WEFT_API const Tensor& relu_(const Tensor& a);
WEFT_API const Tensor& exp_(const Tensor& a);
WEFT_API const Tensor& log_(const Tensor& a);
WEFT_API const Tensor& sqrt_(const Tensor& a);
WEFT_API const Tensor& rsqrt_(const Tensor& a);
WEFT_API const Tensor& tanh_(const Tensor& a);
WEFT_API const Tensor& sigmoid_(const Tensor& a);
WEFT_API const Tensor& silu_(const Tensor& a);
WEFT_API const Tensor& floor_(const Tensor& a);
WEFT_API const Tensor& ceil_(const Tensor& a);
WEFT_API const Tensor& trunc_(const Tensor& a);
WEFT_API const Tensor& round_(const Tensor& a);
inline const Tensor& zero_(const Tensor& a) {
  fill_(a, 0);
  return a;
}

inline const Tensor& operator+=(const Tensor& a, const Operand& b) { return add_(a, b); }
inline const Tensor& operator-=(const Tensor& a, const Operand& b) { return sub_(a, b); }
inline const Tensor& operator*=(const Tensor& a, const Operand& b) { return mul_(a, b); }
inline const Tensor& operator/=(const Tensor& a, const Operand& b) { return div_(a, b); }
inline const Tensor& operator%=(const Tensor& a, const Operand& b) { return remainder_(a, b); }
inline const Tensor& operator&=(const Tensor& a, const Operand& b) { return bitwise_and_(a, b); }
inline const Tensor& operator|=(const Tensor& a, const Operand& b) { return bitwise_or_(a, b); }
inline const Tensor& operator^=(const Tensor& a, const Operand& b) { return bitwise_xor_(a, b); }
inline const Tensor& operator<<=(const Tensor& a, const Operand& b) {
  return bitwise_left_shift_(a, b);
}
inline const Tensor& operator>>=(const Tensor& a, const Operand& b) {
  return bitwise_right_shift_(a, b);
}

// Updates, which are never recorded. `gradient_scale` and `b` have one element.

/// Hyperparameters of one AdamW step (Loshchilov and Hutter, 2019).
struct AdamWStep {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  /// Counts from 1: the bias corrections are 1 - beta^step.
  int64_t step = 1;
};

/// Changes parameter, m and v in place: m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2,
/// p -= lr (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps) + weight_decay p), where g is
/// `gradient` times `gradient_scale` (one element, f32). With `rates` (f64 [3] on the parameter's
/// device, as returned by `adamw_rates`), the numbers that change from step to step (lr, step) are
/// read from it when the kernel runs.
WEFT_API void adamw_(const Tensor& parameter, const Tensor& m, const Tensor& v,
                     const Tensor& gradient, const Tensor& gradient_scale, const AdamWStep& step,
                     const Tensor& rates = {});
/// Returns 1 - lr weight_decay, lr / (1 - beta1^step) and 1 / sqrt(1 - beta2^step).
WEFT_API std::vector<double> adamw_rates(const AdamWStep& step);

/// With g = gradient * gradient_scale + weight_decay * parameter: velocity = momentum * velocity +
/// g, parameter -= lr * velocity; with `nesterov`, parameter -= lr * (g + momentum * velocity).
/// Without momentum, `velocity` may be empty.
WEFT_API void sgd_(const Tensor& parameter, const Tensor& velocity, const Tensor& gradient,
                   const Tensor& gradient_scale, double learning_rate, double momentum,
                   double weight_decay, bool nesterov = false);

/// a *= b, where b has one element.
WEFT_API void scale_(const Tensor& a, const Tensor& b);

/// a += x * b * factor, where b has one element.
WEFT_API void add_scaled_(const Tensor& a, const Tensor& x, const Tensor& b, double factor = 1);

}  // namespace weft
