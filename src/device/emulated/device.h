// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "weft/export.h"
#include "weft/stream.h"

namespace weft::cuda::emulated {

// Memory of emulated devices: host memory that only device work may access. Any other access ends
// the process with a signal. Under the address sanitizer it is plain memory instead, checked for
// overruns.

void* allocate_device_memory(size_t bytes);
void free_device_memory(void* data) noexcept;

/// Lets all threads access the memory while an instance exists.
class DeviceMemoryOpen : NotCopied {
 public:
  DeviceMemoryOpen();
  ~DeviceMemoryOpen();
};

// Streams of an emulated device. Queued work runs as late as possible: when the host synchronises,
// or at random after `run_at_random`. A missing wait then gives wrong
// results, as on a busy GPU. While one queue is held back, all others run as early as possible, so
// that work which lacks a wait for the held queue runs too early.

struct Queue;

/// The work of a queue up to number `count`.
struct Mark {
  std::shared_ptr<Queue> queue = {};
  uint64_t count = 0;
  /// The recording that it belongs to; 0 for none.
  uint64_t recording = 0;
};

/// A piece of work, or a wait for another queue.
struct Item {
  std::function<void()> work;
  Mark awaited;
};

struct Queue {
  std::deque<Item> work;
  /// The number of items that have run, of all that were ever queued.
  std::atomic<uint64_t> done{0};
  bool running = false;
};

std::shared_ptr<Queue> make_queue();
void enqueue(const std::shared_ptr<Queue>& queue, std::function<void()> work);
/// Makes later work of the queue start after the mark.
void enqueue_wait(const std::shared_ptr<Queue>& queue, const Mark& mark);
/// Makes queueing run some of the pending work of a random queue.
void run_at_random(uint64_t seed);
/// Holds this queue back, and no other; null holds none.
void hold(const std::shared_ptr<Queue>& queue);
/// While an instance exists, queueing on the calling thread runs no work.
class QueuedOnly : NotCopied {
 public:
  QueuedOnly();
  ~QueuedOnly();

 private:
  bool before_;
};
/// Starts recording what the calling thread queues on this queue and on those that wait for it.
void begin_recording(const std::shared_ptr<Queue>& queue);
/// A step of a record; each replay calls it with the queue on which it is replayed.
using Step = std::function<void(const std::shared_ptr<Queue>&)>;
/// Adds a step to the calling thread's recording.
void record(Step step);
/// Ends the recording and returns its steps in order.
std::vector<Step> end_recording();
/// Returns the number of the calling thread's recording; 0 when there is none.
uint64_t recording_number();
Mark mark_of(const std::shared_ptr<Queue>& queue);
/// Runs the queue's work up to the mark.
void run_until(const Mark& mark);
/// Returns true when that work is done. Otherwise it starts the work on a thread of the device,
/// because a GPU makes progress even when nothing waits for it. Does not block.
bool is_reached(const Mark& mark);
/// Runs all work of the queue.
void run_all(const std::shared_ptr<Queue>& queue);
/// Runs the work of all queues.
void run_all();

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
