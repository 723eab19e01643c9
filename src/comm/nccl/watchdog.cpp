// SPDX-License-Identifier: Apache-2.0
#include "src/comm/nccl/watchdog.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace weft {

namespace {

class Watchdog {
 public:
  void add(Watched& watched) {
    const std::lock_guard lock(mutex_);
    watched_.push_back(&watched);
    changed_.notify_all();
    if (is_awake_) return;
    is_awake_ = true;
    std::thread([this] { run(); }).detach();
  }

  void remove(Watched& watched) {
    const std::lock_guard lock(mutex_);
    std::erase(watched_, &watched);
    changed_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!watched_.empty()) {
      std::chrono::milliseconds period = std::chrono::seconds(1);
      for (Watched* watched : watched_) {
        watched->look();
        period = std::min(period, watched->period());
      }
      changed_.wait_for(lock, period);
    }
    is_awake_ = false;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Watched*> watched_;
  bool is_awake_ = false;
};

Watchdog& watchdog() {
  static auto* const one = new Watchdog;  // its thread may outlive the program's end
  return *one;
}

}  // namespace

void watch(Watched& watched) { watchdog().add(watched); }
void unwatch(Watched& watched) { watchdog().remove(watched); }

}  // namespace weft
