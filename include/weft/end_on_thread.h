// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "weft/export.h"

namespace weft {

/// Ends what belongs to the calling thread and other threads let go of.
WEFT_API void end_departed();

/// What `end_departed` asks, on the thread that made it, until it is closed.
class WEFT_API DepartedObjects {
 public:
  DepartedObjects(const DepartedObjects&) = delete;
  DepartedObjects& operator=(const DepartedObjects&) = delete;
  virtual ~DepartedObjects() = default;
  virtual void reap() = 0;

 protected:
  DepartedObjects();
  void close_list();

 private:
  friend WEFT_API void end_departed();
  DepartedObjects* next_;
};

/// Where objects end that belong to the thread that made this: there. Python collects garbage on
/// any thread, and lets go of what holds them there.
template <class T>
class EndOnThread final : public DepartedObjects {
 public:
  /// The calling thread's.
  static const std::shared_ptr<EndOnThread>& of_thread() {
    struct Holder {
      std::shared_ptr<EndOnThread> end = std::make_shared<EndOnThread>();
      ~Holder() { end->close(); }
    };
    thread_local const Holder holder;
    return holder.end;
  }
  /// The first handle of an object that belongs to the calling thread.
  static std::shared_ptr<T> owned(T* object) {
    return {object, [end = of_thread()](T* gone) { end->take(gone); }};
  }

  /// Ends the object, now or when its thread comes by.
  void take(T* object) {
    {
      const std::lock_guard lock(mutex_);
      if (!is_closed_ && std::this_thread::get_id() != owner_) {
        departed_.emplace_back(object);
        return;
      }
    }
    delete object;
  }
  /// Takes one back that departed elsewhere; false where it is not here.
  bool revive(const T& object) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(departed_.begin(), departed_.end(),
                                    [&](const auto& one) { return one.get() == &object; });
    if (found == departed_.end()) return false;
    [[maybe_unused]] T* const taken = found->release();
    departed_.erase(found);
    return true;
  }
  /// Ends those that departed elsewhere; by their thread.
  void reap() override {
    std::vector<std::unique_ptr<T>> departed;
    const std::lock_guard lock(mutex_);
    departed.swap(departed_);
  }
  /// The thread ends: what comes later ends where it is let go of.
  void close() {
    close_list();
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
    }
    reap();
  }

 private:
  std::mutex mutex_;
  const std::thread::id owner_ = std::this_thread::get_id();
  bool is_closed_ = false;
  std::vector<std::unique_ptr<T>> departed_;
};

}  // namespace weft
