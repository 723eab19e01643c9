// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/extend/op.h"

namespace weft {

/// The op of `matmul` for operands of one dtype.
const Op& matmul_product();

}  // namespace weft
