// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "src/kernels/kernel.h"
#include "src/kernels/math/math.h"

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
WEFT_KERNEL(void, adamw,
            (const MemoryBlock& parameter, const MemoryBlock& m, const MemoryBlock& v,
             const MemoryBlock& grad, const AdamWNumbers& options,
             const MemoryBlock* grad_factor = nullptr, const MemoryBlock* rates = nullptr),
            (parameter, m, v, grad, options, grad_factor, rates))

/// Stochastic gradient descent, as torch.optim.SGD computes it.
struct Sgd {
  double learning_rate = 1e-3;
  double momentum = 0;
  double weight_decay = 0;
  /// Steps along the gradient plus momentum times the new velocity (Sutskever et al., 2013).
  bool nesterov = false;
};

/// The same for SGD. `velocity` starts at zeros; it has no data when momentum is 0.
WEFT_KERNEL(void, sgd,
            (const MemoryBlock& parameter, const MemoryBlock& velocity, const MemoryBlock& grad,
             const Sgd& options, const MemoryBlock* grad_factor = nullptr),
            (parameter, velocity, grad, options, grad_factor))

/// One AdamW step, applied element by element.
template <class C> struct AdamWElement {
  /// of_gradient and of_square are 1 - beta, rounded once.
  C decay, of_gradient, beta2, of_square, rate, root_correction, eps, grad_factor;

  WEFT_FN void take_rates(const double* rates) {
    decay = C(rates[0]), rate = C(rates[1]), root_correction = C(rates[2]);
  }

  WEFT_FN void operator()(C& p, C& m, C& v, C g) const {
    const C scaled = g * grad_factor;
    m = m + (scaled - m) * of_gradient;
    v = v * beta2 + scaled * scaled * of_square;
    p = p * decay - rate * m / (sqrt(v) * root_correction + eps);
  }
};

template <class C> struct SgdElement {
  /// The step is of_gradient times the gradient plus of_velocity times the new velocity.
  C rate, momentum, decay, of_gradient, of_velocity, grad_factor;

  /// Without momentum `velocity` just receives the gradient.
  WEFT_FN void operator()(C& p, C& velocity, C g) const {
    const C gradient = g * grad_factor + p * decay;
    velocity = velocity * momentum + gradient;
    p = p - rate * (velocity * of_velocity + gradient * of_gradient);
  }
};

/// Throw std::invalid_argument for arrays that no step can use.
void check_adamw(const MemoryBlock& parameter, const MemoryBlock& m, const MemoryBlock& v,
                 const MemoryBlock& grad, const MemoryBlock* rates);
void check_sgd(const MemoryBlock& parameter, const MemoryBlock& velocity, const MemoryBlock& grad,
               const Sgd& options);

inline namespace WEFT_COMPILER {

template <class C> AdamWElement<C> element_of(const AdamWNumbers& options, C grad_factor) {
  AdamWElement<C> element{};
  element.of_gradient = static_cast<C>(1 - options.beta1);
  element.beta2 = static_cast<C>(options.beta2);
  element.of_square = static_cast<C>(1 - options.beta2);
  element.eps = static_cast<C>(options.eps);
  element.grad_factor = grad_factor;
  element.take_rates(rates_of(options).data());
  return element;
}

template <class C> SgdElement<C> element_of(const Sgd& options, C grad_factor) {
  return {static_cast<C>(options.learning_rate),
          static_cast<C>(options.momentum),
          static_cast<C>(options.weight_decay),
          static_cast<C>(options.nesterov),
          static_cast<C>(options.nesterov ? options.momentum : 1),
          grad_factor};
}

}  // namespace WEFT_COMPILER
}  // namespace weft
