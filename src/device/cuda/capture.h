// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "weft/stream.h"

namespace weft::cuda {

// CUDA graph capture: work is recorded instead of run, and replayed later any number of times. Each
// thread has at most one capture at a time. A stream takes part once it waits for an event of one
// that does; work on another stream runs at once and is not recorded. Events recorded before the
// capture, or on a stream that takes no part, count as reached (replaying a graph waits for all
// streams), and events of a capture have no effect outside it.

/// Starts recording the work queued on `stream` and on streams that wait for it.
void begin_capture(const Stream& stream);
/// Ends the capture and returns its graph. `stream` must have waited for all captured streams.
void* end_capture(const Stream& stream);
/// Ends the capture and discards it.
void drop_capture(const Stream& stream) noexcept;
/// Returns the number of the calling thread's capture; 0 when there is none.
uint64_t capture_number();
/// During a capture the host cannot read the device's memory.
inline bool is_capturing() { return capture_number() != 0; }

/// Queues the graph on `stream`.
void play(void* graph, const Stream& stream);
void destroy_graph(void* graph) noexcept;

}  // namespace weft::cuda
