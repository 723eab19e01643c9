// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/stream.h"

namespace weft::cuda {

/// Work that takes `microseconds` of a GPU's time and does nothing: for tests of the order of
/// streams. On the emulated device it holds the stream back behind all others.
void delay(const Stream& stream, int microseconds);

}  // namespace weft::cuda
