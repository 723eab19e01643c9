// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "weft/tensor.h"
#include "weft/tier.h"

namespace weft {

/// `recompute` of a function that uses the tensors that `used` returns after the first run. Their
/// gradients are complete when all recomputations of a backward that use them have run.
Tensors recompute_using(const std::function<Tensors()>& used,
                        const std::function<Tensors(const Tensors&)>& function,
                        const Tensors& inputs, const std::vector<std::string>& kept,
                        const Tier& offload_to);

}  // namespace weft
