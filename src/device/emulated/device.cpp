// SPDX-License-Identifier: Apache-2.0
#include "src/device/emulated/device.h"

#include <sys/mman.h>

#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>

namespace weft::cuda::emulated {

static constexpr size_t kDeviceBytes = size_t{16} << 30;

#if defined(__SANITIZE_ADDRESS__)

void* allocate_device_memory(size_t bytes) {
  return bytes > kDeviceBytes ? nullptr : std::aligned_alloc(256, (bytes + 255) / 256 * 256);
}
void free_device_memory(void* data) noexcept { std::free(data); }
DeviceMemoryOpen::DeviceMemoryOpen() = default;
DeviceMemoryOpen::~DeviceMemoryOpen() = default;

#else

namespace {

/// One region of address space, whose used front is protected as a whole.
struct Region {
  std::mutex mutex;
  char* begin = nullptr;
  size_t used = 0;
  int open = 0;
  /// Sizes of the blocks in use, and free blocks by size.
  std::map<void*, size_t> blocks;
  std::multimap<size_t, void*> free;

  Region() {
    void* memory =
        mmap(nullptr, kDeviceBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) begin = static_cast<char*>(memory);
  }
  void protect() const { mprotect(begin, used, open > 0 ? PROT_READ | PROT_WRITE : PROT_NONE); }
};

Region& region() {
  static auto* const one = new Region;
  return *one;
}

constexpr size_t kPage = 4096;
/// Free blocks of at least this size return their pages: protecting memory visits each page.
constexpr size_t kGivenBack = size_t{256} << 10;

}  // namespace

void* allocate_device_memory(size_t bytes) {
  Region& memory = region();
  const std::lock_guard lock(memory.mutex);
  const size_t size = (bytes + kPage - 1) / kPage * kPage;
  if (const auto kept = memory.free.find(size); kept != memory.free.end()) {
    void* data = kept->second;
    memory.free.erase(kept);
    memory.blocks[data] = size;
    return data;
  }
  if (!memory.begin || memory.used + size > kDeviceBytes) return nullptr;
  void* data = memory.begin + memory.used;
  memory.used += size;
  memory.blocks[data] = size;
  if (memory.open > 0) memory.protect();
  return data;
}

void free_device_memory(void* data) noexcept {
  Region& memory = region();
  const std::lock_guard lock(memory.mutex);
  const auto block = memory.blocks.find(data);
  if (block == memory.blocks.end()) std::abort();
  if (block->second >= kGivenBack) madvise(data, block->second, MADV_DONTNEED);
  memory.free.emplace(block->second, data);
  memory.blocks.erase(block);
}

DeviceMemoryOpen::DeviceMemoryOpen() {
  Region& memory = region();
  const std::lock_guard lock(memory.mutex);
  if (++memory.open == 1) memory.protect();
}

DeviceMemoryOpen::~DeviceMemoryOpen() {
  Region& memory = region();
  const std::lock_guard lock(memory.mutex);
  if (--memory.open == 0) memory.protect();
}

#endif

namespace {

/// All queues. The mutex serialises all work.
struct Scheduler {
  std::recursive_mutex mutex;
  std::vector<std::weak_ptr<Queue>> queues;
  /// The queue that is held back.
  std::weak_ptr<Queue> held;
  bool random = false;
  std::mt19937_64 numbers;
};

Scheduler& scheduler() {
  static auto* const one = new Scheduler;  // outlives the queues of threads that end late
  return *one;
}

void run_next(Queue& queue) {
  const Item item = std::move(queue.work.front());
  queue.work.pop_front();
  queue.running = true;
  if (item.work) {
    item.work();
  } else {
    run_until(item.awaited);
  }
  queue.running = false;
  ++queue.done;
}

/// Runs work that need not wait for other queues; returns true when there was any.
bool run_what_is_free(Queue& queue) {
  bool ran = false;
  while (!queue.running && !queue.work.empty()) {
    const Item& next = queue.work.front();
    if (!next.work && next.awaited.queue->done < next.awaited.count) break;
    run_next(queue);
    ran = true;
  }
  return ran;
}

void run_all_but(const std::shared_ptr<Queue>& held, const Scheduler& all) {
  for (bool ran = true; ran;) {
    ran = false;
    for (const auto& weak : all.queues) {
      const std::shared_ptr<Queue> queue = weak.lock();
      if (queue && queue != held && run_what_is_free(*queue)) ran = true;
    }
  }
}

/// A thread that runs queues up to the requested marks.
class DeviceThread {
 public:
  void ask(const Mark& mark) {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    asked_.push_back(mark);
    changed_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return !asked_.empty(); });
      const std::vector<Mark> marks = std::exchange(asked_, {});
      lock.unlock();
      for (const Mark& mark : marks) run_until(mark);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Mark> asked_;
  std::thread thread_;
};

/// Runs some of the pending work of a random queue.
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

/// A recording in progress. Steps are kept in the order in which they were queued, which is a valid
/// order to replay them.
struct Recording {
  std::set<const Queue*> queues;
  std::vector<Step> steps;
};
/// Number of the recording in progress, else 0. It is no part of the recording: memory is given
/// back when a thread's objects have been destroyed, and asks for it.
static constinit thread_local uint64_t recording_in_progress = 0;
static Recording& recording() {
  struct Holder {
    Recording one;
    ~Holder() { recording_in_progress = 0; }
  };
  static thread_local const auto current = std::make_unique<Holder>();
  return current->one;
}

static bool is_recorded(const std::shared_ptr<Queue>& queue) {
  return recording_in_progress != 0 && recording().queues.contains(queue.get());
}

void begin_recording(const std::shared_ptr<Queue>& queue) {
  static std::atomic<uint64_t> recordings{0};
  recording() = {{queue.get()}, {}};
  recording_in_progress = ++recordings;
}

void record(Step step) { recording().steps.push_back(std::move(step)); }

std::vector<Step> end_recording() {
  recording_in_progress = 0;
  return std::exchange(recording(), {}).steps;
}

uint64_t recording_number() { return recording_in_progress; }

static thread_local bool queued_only = false;

QueuedOnly::QueuedOnly() : before_(std::exchange(queued_only, true)) {}
QueuedOnly::~QueuedOnly() { queued_only = before_; }

static void enqueue_item(const std::shared_ptr<Queue>& queue, Item item) {
  Scheduler& all = scheduler();
  const std::lock_guard lock(all.mutex);
  queue->work.push_back(std::move(item));
  if (const auto held = all.held.lock()) {
    run_all_but(held, all);
  } else if (all.random && !queued_only) {
    run_some(all);
  }
}

void enqueue(const std::shared_ptr<Queue>& queue, std::function<void()> work) {
  if (is_recorded(queue)) {
    return record([work = std::move(work)](const auto& played) { enqueue(played, work); });
  }
  enqueue_item(queue, {std::move(work), {}});
}

void enqueue_wait(const std::shared_ptr<Queue>& queue, const Mark& mark) {
  if (mark.recording != 0) {
    if (mark.recording == recording_in_progress) recording().queues.insert(queue.get());
    return;
  }
  if (is_recorded(queue)) return;
  enqueue_item(queue, {nullptr, mark});
}

void run_at_random(uint64_t seed) {
  Scheduler& all = scheduler();
  const std::lock_guard lock(all.mutex);
  all.random = true;
  all.numbers.seed(seed);
}

void hold(const std::shared_ptr<Queue>& queue) {
  const std::lock_guard lock(scheduler().mutex);
  scheduler().held = queue;
}

Mark mark_of(const std::shared_ptr<Queue>& queue) {
  if (is_recorded(queue)) return {queue, 0, recording_in_progress};
  const std::lock_guard lock(scheduler().mutex);
  return {queue, queue->done + queue->work.size() + (queue->running ? 1 : 0)};
}

void run_until(const Mark& mark) {
  const std::lock_guard lock(scheduler().mutex);
  while (mark.queue->done < mark.count && !mark.queue->running) run_next(*mark.queue);
}

bool is_reached(const Mark& mark) {
  // Never destroyed, so that it exists until the process ends.
  static auto* const device = new DeviceThread;
  if (mark.queue->done >= mark.count) return true;
  device->ask(mark);
  return false;
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
