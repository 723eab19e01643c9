// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "weft/communicator.h"
#include "weft/export.h"
#include "weft/parameter.h"

namespace weft {

/// `gradient_norm` whose bits do not depend on the number of ranks, on how they cut parameters, or
/// on threads: squares are added as whole numbers, of which a square has 61 bits below the square
/// of the greatest magnitude. Gradients are on the CPU. Returns f32 of no dims. Collective, also
/// over the ranks `others`, if given, which have other parameters.
WEFT_API Tensor fixed_norm(const std::vector<ParameterPtr>& parameters,
                           const Communicator& others = {});

}  // namespace weft
