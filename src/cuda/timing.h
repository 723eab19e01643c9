// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "weft/stream.h"

namespace weft::cuda {

// Times at which a GPU comes to points of its streams.

/// A point in what was queued on `stream` so far; not while it is recorded (capture.h).
void* mark_time(const Stream& stream);
void destroy_time(void* time) noexcept;
/// Waits until both are reached; nanoseconds from one to the other, to half a microsecond or a
/// millionth of it.
int64_t nanoseconds_between(void* earlier, void* later);

}  // namespace weft::cuda
