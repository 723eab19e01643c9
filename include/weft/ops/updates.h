// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// In place and never recorded. `gradient_scale` and `b` have one element, f32.

/// Numbers of one AdamW step (Loshchilov and Hutter, 2019).
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
/// `gradient` times the one element of `gradient_scale` (f32). What differs from one step to the
/// next (lr, step) is read from `rates`, if there are any, when the step is done: f64 [3] on the
/// parameter's device, as `adamw_rates` gives them.
WEFT_API void adamw_(const Tensor& parameter, const Tensor& m, const Tensor& v,
                     const Tensor& gradient, const Tensor& gradient_scale, const AdamWStep& step,
                     const Tensor& rates = {});
/// 1 - lr weight_decay, lr / (1 - beta1^step) and 1 / sqrt(1 - beta2^step).
WEFT_API std::vector<double> adamw_rates(const AdamWStep& step);

/// With g = gradient * gradient_scale + weight_decay * parameter: velocity = momentum * velocity +
/// g, parameter -= lr * velocity. Without momentum there may be no velocity.
WEFT_API void sgd_(const Tensor& parameter, const Tensor& velocity, const Tensor& gradient,
                   const Tensor& gradient_scale, double learning_rate, double momentum,
                   double weight_decay);

/// a *= b, one element.
WEFT_API void scale_(const Tensor& a, const Tensor& b);

/// a += x * b * factor, where b has one element.
WEFT_API void add_scaled_(const Tensor& a, const Tensor& x, const Tensor& b, double factor = 1);

}  // namespace weft
