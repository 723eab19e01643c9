// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "weft/krylov.h"

namespace weft::linalg {

/// Returns `vector` in f32 or f64, without parts of sums.
Tensor solvable(const char* what, const char* name, const Tensor& vector);

void check_operator(const char* what, const LinearOperator& a);
/// Returns the values of a small result on every rank.
std::vector<double> values_of(const Tensor& a);
/// Returns the greatest magnitude; throws where it is not finite.
double greatest(const char* what, const char* name, const Tensor& x);

}  // namespace weft::linalg
