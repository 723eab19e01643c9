// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ops/engine/definition.h"
#include "ops/promotion.h"

namespace weft {

/// The definition of a fused gradient whose operands are the gradient of the op's only result, and
/// the op's operands.
inline OpDefinition gradient_definition(const OpDefinition& definition, int operands) {
  return [definition, operands](std::span<const Tensor> all, const Attributes& attributes) {
    std::vector<int> of;
    for (int i = 0; i < operands; ++i) of.push_back(i);
    return gradients_by(definition, all.subspan(1), attributes, {all[0]}, of);
  };
}

/// `dropout` with the probability and the random state of these attributes.
Tensor dropout_by(const Attributes& attributes, const Tensor& x);

/// Converts to the dtype in which kernels compute: f32, or f64.
inline Tensor widened(const Tensor& x) {
  return as_dtype(x, x.dtype() == DType::f64 ? DType::f64 : DType::f32);
}

}  // namespace weft
