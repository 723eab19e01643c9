// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "weft/block.h"

namespace weft {

/// AdamW of Loshchilov and Hutter, as torch.optim.AdamW computes it.
struct AdamWNumbers {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  /// The number of this step, starting at 1.
  int64_t step = 1;
};

/// The values that change from step to step: 1 - rate * weight decay, rate / (1 - beta1^step) and 1
/// / sqrt(1 - beta2^step).
inline constexpr int kAdamWRates = 3;
std::array<double, kAdamWRates> rates_of(const AdamWNumbers& numbers);

/// Performs one step in place, in one pass over dense blocks of equal size, computed in f32 (f64
/// for f64 parameters); the gradient has any floating dtype. `grad_factor`, one element, scales the
/// gradient. `rates`, f64 on the parameter's device, replaces those of `options`; it is read when
/// the step runs.
void adamw(const MemoryBlock& parameter, const MemoryBlock& m, const MemoryBlock& v,
           const MemoryBlock& grad, const AdamWNumbers& options,
           const MemoryBlock* grad_factor = nullptr, const MemoryBlock* rates = nullptr);

/// Stochastic gradient descent, as torch.optim.SGD computes it.
struct Sgd {
  double learning_rate = 1e-3;
  double momentum = 0;
  double weight_decay = 0;
  /// Steps along the gradient plus momentum times the new velocity (Sutskever et al., 2013).
  bool nesterov = false;
};

/// The same for SGD. `velocity` starts at zeros; it has no data when momentum is 0.
void sgd(const MemoryBlock& parameter, const MemoryBlock& velocity, const MemoryBlock& grad,
         const Sgd& options, const MemoryBlock* grad_factor = nullptr);

/// Lion of Chen et al. (2023), algorithm 2.
struct LionNumbers {
  double learning_rate = 1e-4;
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;
};

/// The same for Lion.
void lion(const MemoryBlock& parameter, const MemoryBlock& m, const MemoryBlock& grad,
          const LionNumbers& options, const MemoryBlock* grad_factor = nullptr);

}  // namespace weft
