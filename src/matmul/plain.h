// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/matmul/product.h"

namespace weft {

/// The product in plain loops over registers, for every dtype but bool; without oneDNN the only
/// one.
void multiply_plain(const Product& product);

}  // namespace weft
