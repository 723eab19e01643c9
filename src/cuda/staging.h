// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "weft/stream.h"

namespace weft::cuda {

// Copies between a GPU and any host memory, by way of pinned memory that the calling thread keeps:
// four stretches of at most 4 MiB, so that the host copies one while the GPU does another.

/// Queued on `stream`; `from` has been read when it returns, whatever the GPU is doing.
void send_to_device(void* to, const void* from, size_t bytes, const Stream& stream);
/// Called after each read of the calling thread; throws when what was read is of no use, as after a
/// collective that was given up.
void check_reads_by(void (*check)());
/// The bytes are there when it returns.
void read_from_device(void* to, const void* from, size_t bytes, const Stream& stream);

}  // namespace weft::cuda
