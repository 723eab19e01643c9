// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/convolution/convolution.h"

namespace weft {

/// The one of image, filter and result that is computed from the other two.
enum class Convolved : uint8_t { result, image, filter };

/// Computes it by oneDNN, if that has a kernel for it; otherwise returns false.
bool convolve_by_onednn(Convolved what, const Taps& taps, const MemoryBlock& image,
                        const MemoryBlock& filter, const MemoryBlock& result);

}  // namespace weft
