// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "weft/stream.h"

namespace weft::cuda {

// Measures when a GPU reaches points of its streams.

/// Marks a point in the work queued on `stream` so far; not during a capture (capture.h).
void* mark_time(const Stream& stream);
void destroy_time(void* time) noexcept;
/// Waits until both points are reached; returns the nanoseconds between them, accurate to half a
/// microsecond or a millionth of the interval, whichever is larger.
int64_t nanoseconds_between(void* earlier, void* later);

}  // namespace weft::cuda
