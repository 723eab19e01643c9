// SPDX-License-Identifier: Apache-2.0
#include "src/device/disk_queue.h"
#include "weft/export.h"

#include <cerrno>

#ifdef WEFT_WITH_URING

#include <liburing.h>

#include <mutex>
#include <thread>

namespace weft {

namespace {

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

}  // namespace

std::unique_ptr<DiskQueue> make_uring_queue(int& reason, std::chrono::milliseconds timeout) {
  auto queue = std::make_unique<UringQueue>(reason, timeout);
  if (!queue->is_open()) return nullptr;
  return queue;
}

}  // namespace weft

#else

namespace weft {

std::unique_ptr<DiskQueue> make_uring_queue(int& reason, std::chrono::milliseconds) {
  reason = ENOSYS;
  return nullptr;
}

}  // namespace weft

#endif
