// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "weft/parameter.h"
#include "weft/tensor.h"

namespace weft {

/// Sums the gradients of micro-steps in one binary tree over their numbers: sums of 2, 4, 8, ...
/// neighbours wait for the neighbouring sum of as many.
class GradientTree {
 public:
  /// Takes the parameters' gradients of micro-step `number`, from 0 in order; the last leaves the
  /// sum of all in the gradients.
  void add(const std::vector<ParameterPtr>& parameters, int64_t number, bool is_last);

 private:
  /// Sums of 1, 2, 4, ... micro-steps; empty: there is none.
  std::vector<Tensors> waiting_;
};

/// Returns this rank's part of a sum over the rows of a mesh.
double own_part(const Tensor& sum);

}  // namespace weft
