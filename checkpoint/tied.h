// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/tensor.h"

namespace weft {

/// One parameter may be found under two names: std::invalid_argument, which begins with `what` and
/// names both, unless all their elements are equal (NaN to NaN). Collective where both are sharded.
void check_tied(const std::string& what, const std::string& name, const Tensor& tensor,
                const std::string& other_name, const Tensor& other);

}  // namespace weft
