// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft {

/// out = scale * the discrete Fourier transform of `in` along `dim`: sums of in[j] exp(-2 pi i j k
/// / n), or exp(+2 pi i j k / n) with `inverse`. Both are complex and of one shape; or `in` is real
/// and `out` has the first n / 2 + 1 frequencies; or `in` has these, of a real `out`. CPU only.
void fourier_transform(const MemoryBlock& out, const MemoryBlock& in, int dim, bool inverse,
                       double scale);

}  // namespace weft
