// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/operand.h"
#include "weft/tensor.h"

namespace weft {

// Random tensors laid out as another one. Each call uses the next stream of the rank's random
// state; the elements are the same for any layout.

/// Uniform in [0, 1), standard normal, and integers in [low, high), in shape and dtype of `a`.
WEFT_API Tensor rand_like(const Tensor& a);
WEFT_API Tensor randn_like(const Tensor& a);
WEFT_API Tensor randint_like(const Tensor& a, int64_t low, int64_t high);
/// 1 with the probability of the element, else 0.
WEFT_API Tensor bernoulli(const Tensor& probabilities);
/// 1 with probability p, else 0, in shape and dtype of `a`.
WEFT_API Tensor bernoulli(const Tensor& a, double p);
/// Normal values with these means and standard deviations, which broadcast.
WEFT_API Tensor normal(const Operand& mean, const Tensor& deviation);
WEFT_API Tensor normal(const Tensor& mean, double deviation = 1);
/// `count` indices (i64) of the last dim of `weights` [n] or [rows, n], drawn in proportion to the
/// weights, without replacement unless `replacement`: [count] or [rows, count].
WEFT_API Tensor multinomial(const Tensor& weights, int64_t count, bool replacement = false);

// These change the memory of `a` in place, as `uniform_`.

WEFT_API void bernoulli_(const Tensor& a, double p = 0.5);
/// The density is lambda exp(-lambda x).
WEFT_API void exponential_(const Tensor& a, double lambda = 1);
WEFT_API void cauchy_(const Tensor& a, double median = 0, double sigma = 1);
/// The number of trials up to the first success, of probability p in (0, 1).
WEFT_API void geometric_(const Tensor& a, double p);
/// exp of normal values.
WEFT_API void log_normal_(const Tensor& a, double mean = 1, double deviation = 2);
/// Integers in [low, high).
WEFT_API void random_(const Tensor& a, int64_t low, int64_t high);

}  // namespace weft
