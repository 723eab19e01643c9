// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "weft/stream.h"

namespace weft::cuda {

// Copies between a GPU and any host memory through pinned buffers that the calling thread keeps:
// four of at most 4 MiB, so that the host copies one while the GPU copies another.

/// Queues a copy on `stream`; `from` has been read on return, whatever the GPU is doing.
void send_to_device(void* to, const void* from, size_t bytes, const Stream& stream);
/// Sets a function called after each read of the calling thread; it throws when the data read is
/// invalid, as after an aborted collective.
void check_reads_by(void (*check)());
/// The bytes have arrived on return.
void read_from_device(void* to, const void* from, size_t bytes, const Stream& stream);

}  // namespace weft::cuda
