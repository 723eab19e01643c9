// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/ops/cross_entropy.h"

namespace weft {

/// Throws std::invalid_argument "what: ..." for options that do not fit that many classes.
void check_loss_options(const char* what, const CrossEntropyOptions& options, int64_t classes);

/// Reduces the losses of rows with these classes as targets.
Tensor reduced_loss(const Tensor& rows, const Tensor& targets, const CrossEntropyOptions& options);

}  // namespace weft
