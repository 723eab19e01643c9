// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/generate.h"

namespace weft {

/// std::invalid_argument names an option that is out of its range.
void check_sampling(const SamplingOptions& options);

}  // namespace weft
