// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/stream.h"

namespace weft::cuda {

/// Queues work that occupies a GPU for `microseconds` and does nothing, for tests of stream order.
/// On the emulated device it delays the stream behind all others until another stream is delayed,
/// whatever `microseconds` is.
void delay(const Stream& stream, int microseconds);

}  // namespace weft::cuda
