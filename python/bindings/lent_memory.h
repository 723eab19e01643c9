// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "weft/block.h"
#include "weft/tensor.h"

namespace weft::python {

/// The tensor, whose memory others may look at now: of one device, and without a gradient to lose.
/// ValueError names `what` otherwise.
Tensor shown(const char* what, const Tensor& x);
/// The same for those who keep looking: not a parameter that is gathered for a while.
Tensor lent(const char* what, const Tensor& x);

/// Somebody's memory as a tensor: itself when its elements lie without gaps in some order of the
/// dims, a copy otherwise. `owner` keeps the memory. `copy` false makes the copy a ValueError, true
/// makes it in any case.
Tensor tensor_over(const char* what, const Block& block, std::shared_ptr<void> owner,
                   const std::optional<bool>& copy);

}  // namespace weft::python
