// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "weft/stream.h"

namespace weft::cuda::emulated {

/// Queues work that calls the threads of a kernel.
void enqueue_kernel(const Stream& stream, std::function<void()> kernel);

/// Threads of a thread block, run interleaved, each until the next barrier.
class Fibers {
 public:
  /// Calls body(thread) for each of `threads`. In it, `sync` is a barrier over all of them.
  static void run(int threads, const std::function<void(int)>& body);
  static void sync();
};

/// Shared memory of a thread block while it runs.
struct BlockMemory {
  std::vector<std::byte> shared;
  /// One value per thread, during a reduction.
  std::vector<std::byte> values;
};

}  // namespace weft::cuda::emulated
