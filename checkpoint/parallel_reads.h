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
/// a separate buffer: a single read leaves a disk idle, and some threads check and copy data while
/// others wait for it. After a throw no more calls begin; the first exception is rethrown.
void read_in_parallel(size_t count,
                      const std::function<void(size_t i, const BlockBuffer& buffer)>& read);

}  // namespace weft
