// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/device/shared_memory.h"

namespace weft {

/// Locks this process's place among the processes that share a segment; returns false when another
/// process has it. The system releases the lock when the process is gone, however it ended.
bool lock_place(const SharedMemory& segment, int place);
/// Returns true when another process holds the lock of that place.
bool is_place_locked(const SharedMemory& segment, int place);

}  // namespace weft
