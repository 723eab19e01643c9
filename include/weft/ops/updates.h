// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// In-place updates, which are never recorded. `gradient_scale` and `b` have one element.

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
