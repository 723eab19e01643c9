// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace weft::cuda::emulated {

// Streams of a device that is not there. Work is queued and runs as late as it may: when somebody
// synchronises, or at random where the environment says WEFT_EMULATED_SEED. What a program forgot
// to wait for is then not there, as on a busy GPU. While one queue is held back, all others run as
// early as they may: what forgot to wait for it comes too soon.

struct Queue;

/// Work of a queue up to number `count`.
struct Mark {
  std::shared_ptr<Queue> queue = {};
  uint64_t count = 0;
  /// The recording that it is of; 0: of none.
  uint64_t recording = 0;
};

/// Work, or the wait for that of another queue.
struct Item {
  std::function<void()> work;
  Mark awaited;
};

struct Queue {
  std::deque<Item> work;
  /// Of all work that was ever queued, how much has run.
  std::atomic<uint64_t> done{0};
  bool running = false;
};

std::shared_ptr<Queue> make_queue();
void enqueue(const std::shared_ptr<Queue>& queue, std::function<void()> work);
/// Later work of the queue starts after the mark.
void enqueue_wait(const std::shared_ptr<Queue>& queue, const Mark& mark);
/// Holds this queue back from now on, and no other one; none: nothing is held.
void hold(const std::shared_ptr<Queue>& queue);
/// While one lives, nothing runs because the calling thread queues something.
class QueuedOnly {
 public:
  QueuedOnly();
  ~QueuedOnly();
  QueuedOnly(const QueuedOnly&) = delete;
  QueuedOnly& operator=(const QueuedOnly&) = delete;

 private:
  bool before_;
};
/// Records what the calling thread gives this queue, and those that wait for it, from now on.
void begin_recording(const std::shared_ptr<Queue>& queue);
/// What is done each time that a record is played, of the queue that it is played on.
using Step = std::function<void(const std::shared_ptr<Queue>&)>;
/// Adds to the calling thread's recording.
void record(Step step);
/// All of it, in the order it came.
std::vector<Step> end_recording();
/// Tells recordings apart; 0: the calling thread records nothing.
uint64_t recording_number();
Mark mark_of(const std::shared_ptr<Queue>& queue);
/// Runs the queue's work up to the mark.
void run_until(const Mark& mark);
/// True when that work is done. Otherwise it is done soon, by a thread of the device: a GPU does
/// not wait for somebody to wait for it. Does not wait for work that runs now.
bool is_reached(const Mark& mark);
/// Runs all of it.
void run_all(const std::shared_ptr<Queue>& queue);
/// Runs the work of all queues.
void run_all();

}  // namespace weft::cuda::emulated
