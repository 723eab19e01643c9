// SPDX-License-Identifier: Apache-2.0
#include "src/device/disk_queue.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <string_view>
#include <thread>

#include "weft/export.h"
#include "weft/warnings.h"

#ifdef WEFT_WITH_URING
#include <liburing.h>
#endif

namespace weft {

bool DiskRequest::took(int64_t result) {
  if (result == -EINTR || result == -EAGAIN) return false;
  if (result < 0) error = static_cast<int>(-result);
  if (result == 0) error = EIO;
  if (result > 0) moved += result;
  return error != 0 || moved == bytes;
}

namespace {

class ThreadQueue final : public DiskQueue {
 public:
  ThreadQueue() : thread_([this] { run(); }) {}
  ~ThreadQueue() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void start(DiskRequest& request) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(&request);
    }
    changed_.notify_all();
  }

  void wait(DiskRequest& request) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return request.done; });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      DiskRequest& request = *waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      perform(request);
      lock.lock();
      request.done = true;
      changed_.notify_all();
    }
  }

  static void perform(DiskRequest& request) {
    for (bool ended = false; !ended;) {
      std::byte* data = request.data + request.moved;
      const auto left = static_cast<size_t>(request.bytes - request.moved);
      const off_t at = request.offset + request.moved;
      const ssize_t result = request.writes ? ::pwrite(request.file, data, left, at)
                                            : ::pread(request.file, data, left, at);
      ended = request.took(result < 0 ? -errno : result);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<DiskRequest*> waiting_;
  bool ends_ = false;
  /// Last, because it uses the others.
  std::thread thread_;
};

#ifdef WEFT_WITH_URING

class UringQueue final : public DiskQueue, NotCopied {
 public:
  UringQueue(int& reason, std::chrono::milliseconds timeout) : timeout_(timeout) {
    reason = -::io_uring_queue_init(kEntries, &ring_, 0);
    is_open_ = reason == 0;
  }
  ~UringQueue() override {
    if (is_open_) ::io_uring_queue_exit(&ring_);
  }
  bool is_open() const { return is_open_; }

  void start(DiskRequest& request) override {
    const std::lock_guard lock(mutex_);
    submit(request);
  }

  void wait(DiskRequest& request) override {
    const std::lock_guard lock(mutex_);
    while (!request.done) {
      if (!take_result()) fail_with(request, refusal_);
    }
  }

 private:
  static constexpr unsigned kEntries = 64;

  void submit(DiskRequest& request) {
    // As many as the ring has places for results.
    while (under_way_ == kEntries && take_result()) continue;
    if (refusal_ == 0) refusal_ = refusal_of(request);
    if (refusal_ != 0) return fail_with(request, refusal_);
    ++under_way_;
  }

  static void fail_with(DiskRequest& request, int error) {
    request.error = error;
    request.done = true;
  }

  /// Queues the request, and returns 0 or the errno of the system's refusal.
  int refusal_of(DiskRequest& request) {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    void* data = request.data + request.moved;
    const auto bytes = static_cast<unsigned>(request.bytes - request.moved);
    const auto at = static_cast<__u64>(request.offset + request.moved);
    request.writes ? ::io_uring_prep_write(entry, request.file, data, bytes, at)
                   : ::io_uring_prep_read(entry, request.file, data, bytes, at);
    ::io_uring_sqe_set_data(entry, &request);
    int result = 0;
    do {
      result = ::io_uring_submit(&ring_);
    } while (result == -EINTR || result == -EAGAIN || result == -EBUSY);
    return result < 0 ? -result : 0;
  }

  /// Returns the next result, or null when none has come in time. Results are in shared memory:
  /// they are found without the system where it refuses to wait.
  io_uring_cqe* next_result() {
    using Clock = std::chrono::steady_clock;
    io_uring_cqe* entry = nullptr;
    const auto end = Clock::now() + timeout_;
    while (::io_uring_peek_cqe(&ring_, &entry) != 0) {
      if (Clock::now() >= end) return nullptr;
      __kernel_timespec most{.tv_sec = 0, .tv_nsec = 100'000'000};
      const int result = ::io_uring_wait_cqe_timeout(&ring_, &entry, &most);
      if (result == 0) return entry;
      const bool waited = result == -ETIME || result == -EINTR;
      if (!waited) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return entry;
  }

  /// Returns false when no result came in time: then none is taken any more, because requests that
  /// failed may have gone.
  bool take_result() {
    if (refusal_ == ETIMEDOUT) return false;
    io_uring_cqe* entry = next_result();
    if (!entry) {
      refusal_ = ETIMEDOUT;
      return false;
    }
    auto& request = *static_cast<DiskRequest*>(::io_uring_cqe_get_data(entry));
    const int result = entry->res;
    ::io_uring_cqe_seen(&ring_, entry);
    --under_way_;
    if (request.took(result)) {
      request.done = true;
    } else {
      submit(request);
    }
    return true;
  }

  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  io_uring ring_{};
  bool is_open_ = false;
  unsigned under_way_ = 0;
  /// An entry that the system refused stays in the ring, so that nothing is submitted after it: the
  /// system would then use the memory of a request that has ended.
  int refusal_ = 0;
};

#endif

}  // namespace

std::unique_ptr<DiskQueue> make_uring_queue(int& reason,
                                            [[maybe_unused]] std::chrono::milliseconds timeout) {
#ifdef WEFT_WITH_URING
  auto queue = std::make_unique<UringQueue>(reason, timeout);
  if (queue->is_open()) return queue;
#else
  reason = ENOSYS;
#endif
  return nullptr;
}

std::unique_ptr<DiskQueue> make_thread_queue() { return std::make_unique<ThreadQueue>(); }

bool is_plain_io() {
  const char* asked = std::getenv("WEFT_PLAIN_IO");
  return asked && std::string_view(asked) == "1";
}

std::unique_ptr<DiskQueue> make_disk_queue() {
  int reason = 0;
  const bool is_plain = is_plain_io();
  if (!is_plain) {
    if (auto queue = make_uring_queue(reason)) return queue;
  }
  static std::atomic<bool> warned = false;
  if (!warned.exchange(true)) {
    warn("offload: io_uring is not available (",
         is_plain ? "WEFT_PLAIN_IO is set" : std::strerror(reason),
         "), so that a thread of each rank reads and writes the files, which is slower");
  }
  return make_thread_queue();
}

}  // namespace weft
