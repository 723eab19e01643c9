// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Updates of optimizers besides those of in_place.h; never recorded. `gradient_scale` has one
// element.

/// Hyperparameters of one Lion step (Chen et al., 2023).
struct LionStep {
  double learning_rate = 1e-4;
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;
};

/// Changes parameter and m in place: p -= lr (sign(beta1 m + (1 - beta1) g) + weight_decay p), then
/// m = beta2 m + (1 - beta2) g, where g is `gradient` times `gradient_scale`.
WEFT_API void lion_(const Tensor& parameter, const Tensor& m, const Tensor& gradient,
                    const Tensor& gradient_scale, const LionStep& step);

}  // namespace weft
