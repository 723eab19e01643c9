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

#include "weft/warnings.h"

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

}  // namespace

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
