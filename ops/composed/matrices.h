// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/decompositions.h"

namespace weft::linalg {

/// Returns `a` in the dtype of its factors; std::invalid_argument unless it has matrices.
Tensor matrices(const char* what, const Tensor& a);
/// The same for square ones.
Tensor square(const char* what, const Tensor& a);
bool needs_gradient(const Tensor& a);
/// Throws on all ranks if an entry of `info` is not 0, for an algorithm that iterates.
void check_converged(const char* what, const Tensor& a, const Tensor& info);
/// The identity [n, n] next to `a`, of its dtype.
Tensor identity(const Tensor& a, int64_t n);
/// Factors that gradients do not flow through: those of a solution flow to the matrix.
LuFactor constant_factors(const Tensor& a);

}  // namespace weft::linalg
