// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "weft/extend/file.h"
#include "weft/safetensors.h"

namespace weft {

/// Reads `box`, which lies inside the tensor, to `into`, dense and row-major.
void read_box_of_file(const File& file, const SafetensorsEntry& entry, const Box& box,
                      std::byte* into);

}  // namespace weft
