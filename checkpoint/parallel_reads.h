// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "checkpoint/block_buffer.h"

namespace weft {

/// Calls `work(i)` for each i below `count` (the first at least) at once, each in a thread. Where
/// the system has no more threads the last i get none: `work` must leave nothing for a certain i.
/// It must not throw.
void work_in_threads(size_t count, const std::function<void(size_t i)>& work);

/// Calls `read(i, buffer)` for each i below `count`, in order, a few at once, each in a thread with
/// a buffer of its own: one read alone leaves a disk idle, and while some wait for it others check
/// and copy what has come. After a throw no more are begun; what the first of them threw is thrown.
void read_in_parallel(size_t count,
                      const std::function<void(size_t i, const BlockBuffer& buffer)>& read);

}  // namespace weft
