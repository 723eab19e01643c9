// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "weft/export.h"

namespace weft {

/// Destroys objects of the calling thread whose last handle was dropped on another thread.
WEFT_API void end_departed();

/// A list of such objects; `end_departed` calls `reap` on the thread that created it.
class WEFT_API DepartedObjects : NotCopied {
 public:
  virtual ~DepartedObjects() = default;
  virtual void reap() = 0;

 protected:
  DepartedObjects();
  void close_list();

 private:
  friend WEFT_API void end_departed();
  DepartedObjects* next_;
};

/// Destroys objects on the thread that created them. Python collects garbage on any thread and may
/// drop the last handle there.
template <class T> class EndOnThread final : public DepartedObjects {
 public:
  /// Returns the calling thread's instance.
  static const std::shared_ptr<EndOnThread>& of_thread() {
    struct Holder {
      std::shared_ptr<EndOnThread> end = std::make_shared<EndOnThread>();
      ~Holder() { end->close(); }
    };
    WEFT_STATIC_TLS thread_local const Holder holder;
    return holder.end;
  }
  /// Returns the first handle of an object that belongs to the calling thread.
  static std::shared_ptr<T> owned(T* object) {
    return {object, [end = of_thread()](T* gone) { end->take(gone); }};
  }

  /// Destroys the object: now on its own thread, else when that thread calls `end_departed`.
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
  /// Takes `object` off the list without destroying it; false when it is not in the list.
  bool revive(const T& object) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(departed_.begin(), departed_.end(),
                                    [&](const auto& one) { return one.get() == &object; });
    if (found == departed_.end()) return false;
    [[maybe_unused]] T* const taken = found->release();
    departed_.erase(found);
    return true;
  }
  /// Destroys the objects that departed on other threads; called by their own thread.
  void reap() override {
    std::vector<std::unique_ptr<T>> departed;
    const std::lock_guard lock(mutex_);
    departed.swap(departed_);
  }
  /// Called when the thread ends: later objects are destroyed on the thread that drops them.
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
