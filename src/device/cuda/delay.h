// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/stream.h"

namespace weft::cuda {

/// Queues work that occupies a GPU for `microseconds` and does nothing, for tests of stream order.
/// On the emulated device it delays the stream behind all others.
void delay(const Stream& stream, int microseconds);

}  // namespace weft::cuda
