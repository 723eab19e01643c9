// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/adamw/adamw.h"
#include "src/kernels/math/math.h"

namespace weft {

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
