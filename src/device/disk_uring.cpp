// SPDX-License-Identifier: Apache-2.0
#include "src/device/disk_queue.h"

#include <cerrno>

#ifdef WEFT_WITH_URING

#include <liburing.h>

#include <mutex>

namespace weft {

namespace {

class UringQueue final : public DiskQueue {
 public:
  explicit UringQueue(int& reason) {
    reason = -::io_uring_queue_init(kEntries, &ring_, 0);
    is_open_ = reason == 0;
  }
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;
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
    while (!request.done) take_result();
  }

 private:
  static constexpr unsigned kEntries = 64;

  void submit(DiskRequest& request) {
    // As many as the ring has places for results.
    while (under_way_ == kEntries) take_result();
    if (refusal_ == 0) refusal_ = refusal_of(request);
    if (refusal_ == 0) {
      ++under_way_;
      return;
    }
    request.error = refusal_;
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

  void take_result() {
    io_uring_cqe* entry = nullptr;
    if (::io_uring_wait_cqe(&ring_, &entry) != 0) return;  // interrupted
    auto& request = *static_cast<DiskRequest*>(::io_uring_cqe_get_data(entry));
    const int result = entry->res;
    ::io_uring_cqe_seen(&ring_, entry);
    --under_way_;
    if (request.took(result)) {
      request.done = true;
    } else {
      submit(request);
    }
  }

  std::mutex mutex_;
  io_uring ring_{};
  bool is_open_ = false;
  unsigned under_way_ = 0;
  /// An entry that the system refused stays in the ring, so that nothing is submitted after it: the
  /// system would then use the memory of a request that has ended.
  int refusal_ = 0;
};

}  // namespace

std::unique_ptr<DiskQueue> make_uring_queue(int& reason) {
  auto queue = std::make_unique<UringQueue>(reason);
  if (!queue->is_open()) return nullptr;
  return queue;
}

}  // namespace weft

#else

namespace weft {

std::unique_ptr<DiskQueue> make_uring_queue(int& reason) {
  reason = ENOSYS;
  return nullptr;
}

}  // namespace weft

#endif
