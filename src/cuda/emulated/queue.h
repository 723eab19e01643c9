// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace weft::cuda::emulated {

// Streams of a device that is not there. Work is queued and runs as late as it may: when somebody
// synchronises, or at random where the environment says WEFT_EMULATED_SEED. What a program forgot
// to wait for is then not there, as on a busy GPU.

struct Queue;

/// Work of a queue up to number `count`.
struct Mark {
  std::shared_ptr<Queue> queue;
  uint64_t count;
};

struct Queue {
  std::deque<std::function<void()>> work;
  /// Of all work that was ever queued, how much has run.
  uint64_t done = 0;
  bool running = false;
};

std::shared_ptr<Queue> make_queue();
void enqueue(const std::shared_ptr<Queue>& queue, std::function<void()> work);
Mark mark_of(const std::shared_ptr<Queue>& queue);
/// Runs the queue's work up to the mark.
void run_until(const Mark& mark);
/// Runs all of it.
void run_all(const std::shared_ptr<Queue>& queue);
/// Runs the work of all queues.
void run_all();

}  // namespace weft::cuda::emulated
