// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "weft/extend/op.h"

namespace weft {

/// Passes on the gradients of the definition at the operands, all of which the op saves: the
/// backward of an op without a fused gradient, or of one whose fused gradient is to be
/// differentiated.
void give_by_definition(const Grad& grad, const OpDefinition& definition);

/// The gradients of the operands `of`, by the definition, given those of its results (empty: 0).
/// They are recorded if gradients are enabled.
Tensors gradients_by(const OpDefinition& definition, std::span<const Tensor> operands,
                     const Attributes& attributes, const Tensors& gradients,
                     const std::vector<int>& of);

}  // namespace weft
