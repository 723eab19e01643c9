// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "weft/block.h"
#include "weft/tensor.h"

namespace weft::python {

/// Returns the tensor if its memory may be read now: on one device, and without a gradient that
/// would be lost. Throws ValueError naming `what` otherwise.
Tensor shown(const char* what, const Tensor& x);
/// The same for memory that is read later, too: also refuses a parameter that is unsharded for a
/// while.
Tensor lent(const char* what, const Tensor& x);

/// Makes a tensor of foreign memory: a view when its elements fill the memory without gaps in some
/// order of the dims, otherwise a copy. `owner` keeps the memory alive. With `copy` false a needed
/// copy is a ValueError; with true a copy is always made.
Tensor tensor_over(const char* what, const MemoryBlock& block, std::shared_ptr<void> owner,
                   const std::optional<bool>& copy);

}  // namespace weft::python
