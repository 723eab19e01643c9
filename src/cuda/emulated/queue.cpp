// SPDX-License-Identifier: Apache-2.0
#include "src/cuda/emulated/queue.h"

#include <cstdlib>
#include <random>
#include <vector>

namespace weft::cuda::emulated {

namespace {

/// All queues; one thing happens at a time.
struct Scheduler {
  std::recursive_mutex mutex;
  std::vector<std::weak_ptr<Queue>> queues;
  bool random = std::getenv("WEFT_EMULATED_SEED") != nullptr;
  std::mt19937_64 numbers{random ? std::strtoull(std::getenv("WEFT_EMULATED_SEED"), nullptr, 10)
                                 : 0};
};

Scheduler& scheduler() {
  static auto* const one = new Scheduler;  // outlives the queues of threads that end late
  return *one;
}

void run_next(Queue& queue) {
  const std::function<void()> work = std::move(queue.work.front());
  queue.work.pop_front();
  queue.running = true;
  work();
  queue.running = false;
  ++queue.done;
}

/// Some of the work that is there, of any queue.
void run_some(Scheduler& all) {
  const auto& chosen = all.queues[all.numbers() % all.queues.size()];
  const std::shared_ptr<Queue> queue = chosen.lock();
  if (!queue || queue->running) return;
  for (uint64_t steps = all.numbers() % 4; steps > 0 && !queue->work.empty(); --steps) {
    run_next(*queue);
  }
}

}  // namespace

std::shared_ptr<Queue> make_queue() {
  Scheduler& all = scheduler();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.queues, [](const auto& queue) { return queue.expired(); });
  auto queue = std::make_shared<Queue>();
  all.queues.push_back(queue);
  return queue;
}

void enqueue(const std::shared_ptr<Queue>& queue, std::function<void()> work) {
  Scheduler& all = scheduler();
  const std::lock_guard lock(all.mutex);
  queue->work.push_back(std::move(work));
  if (all.random) run_some(all);
}

Mark mark_of(const std::shared_ptr<Queue>& queue) {
  const std::lock_guard lock(scheduler().mutex);
  return {queue, queue->done + queue->work.size() + (queue->running ? 1 : 0)};
}

void run_until(const Mark& mark) {
  const std::lock_guard lock(scheduler().mutex);
  while (mark.queue->done < mark.count && !mark.queue->running) run_next(*mark.queue);
}

void run_all(const std::shared_ptr<Queue>& queue) { run_until(mark_of(queue)); }

void run_all() {
  Scheduler& all = scheduler();
  const std::lock_guard lock(all.mutex);
  for (const auto& queue : all.queues) {
    if (const auto there = queue.lock()) run_all(there);
  }
}

}  // namespace weft::cuda::emulated
