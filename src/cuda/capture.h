// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "weft/stream.h"

namespace weft::cuda {

// Work that is recorded instead of done, and played later, as often as one likes. One capture at a
// time a thread. While it goes on, an event of before is over (whoever plays the graph waits for
// all streams), and one of the capture is nothing to those outside.

/// What is queued on `stream` from now on, and on streams that wait for it, is recorded.
void begin_capture(const Stream& stream);
/// What was recorded. All streams that waited for `stream` have been waited for by it.
void* end_capture(const Stream& stream);
/// Forgets it.
void drop_capture(const Stream& stream) noexcept;
/// Tells captures apart; 0: none goes on in the calling thread.
uint64_t capture_number();
/// Nothing can be read of the device then.
inline bool is_capturing() { return capture_number() != 0; }

/// Queues all of it.
void play(void* graph, const Stream& stream);
void destroy_graph(void* graph) noexcept;

}  // namespace weft::cuda
