// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "weft/stream.h"

namespace weft::cuda::emulated {

/// Queues a kernel: all of its threads, one after the other.
void enqueue_kernel(const Stream& stream, std::function<void()> kernel);

/// Threads of a team, run in turn from one meeting to the next.
class Fibers {
 public:
  /// Calls body(thread) for each of `threads`; to the body, `meet` returns when all have called it.
  static void run(int threads, const std::function<void(int)>& body);
  static void meet();
};

/// What the threads of a team share while they run.
struct TeamMemory {
  std::vector<std::byte> shared;
  /// A value a thread, while it is reduced.
  std::vector<std::byte> values;
};

}  // namespace weft::cuda::emulated
