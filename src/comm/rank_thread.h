// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "weft/export.h"

namespace weft {

/// Lets one thread at a time make the calls of a rank: its collectives, and the ops and tables of
/// its meshes. The rank's own thread is the first that makes one. Another thread may make calls
/// while none is under way; a second other one, when the first has ended or the own thread has made
/// a call since. Otherwise neither may until the own thread has.
class RankThread : NotCopied {
  struct User;

 public:
  /// A call of the calling thread, which may contain others. std::invalid_argument naming `what`
  /// while another thread is in a call, or has started one that it has not waited for.
  class Call : NotCopied {
   public:
    Call(RankThread& rank, std::string_view what) : user_(rank.enter(what)) {}
    /// Does nothing for null.
    Call(RankThread* rank, std::string_view what) : user_(rank ? rank->enter(what) : nullptr) {}
    ~Call() {
      if (user_) user_->add(-1);
    }

   private:
    User* const user_;
  };

  /// A Work of the calling thread, which is in a call; ends on any thread.
  class Started : NotCopied {
   public:
    explicit Started(std::shared_ptr<RankThread> rank)
        : rank_(std::move(rank)), user_(rank_->own()) {
      user_->works.fetch_add(1, std::memory_order_relaxed);
    }
    ~Started() { user_->works.fetch_sub(1, std::memory_order_release); }

    RankThread& rank() const { return *rank_; }
    /// Whether its thread is this one, or makes no call now.
    bool may_end_here() const {
      return user_->is_here() || user_->calls.load(std::memory_order_acquire) == 0;
    }

   private:
    const std::shared_ptr<RankThread> rank_;
    User* const user_;
  };

  /// Returns whether the calling thread, which is in a call, is another than the rank's own.
  bool is_moved() { return own() != home_.load(std::memory_order_relaxed); }

 private:
  /// A thread that has made calls. Only that thread changes `calls`.
  struct User {
    std::atomic<const void*> thread{nullptr};
    std::shared_ptr<const std::atomic<bool>> has_ended;
    std::atomic<int> calls{0};
    std::atomic<int> works{0};

    bool is_here() const { return thread.load(std::memory_order_relaxed) == this_thread(); }
    void add(int count) {
      calls.store(calls.load(std::memory_order_relaxed) + count, std::memory_order_release);
    }
    bool is_busy() const {
      return calls.load(std::memory_order_acquire) > 0 || works.load(std::memory_order_acquire) > 0;
    }
  };

  /// Identifies the calling thread among those that live.
  static const void* this_thread() {
    WEFT_STATIC_TLS static constinit thread_local char here = 0;
    return &here;
  }
  /// Orders the stores of `calls` before the loads of `user_`, as `take_over` sees them.
  static void fence() {
    if (kOthersFence) [[likely]] {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }

  User* enter(std::string_view what) {
    User* const user = user_.load(std::memory_order_acquire);
    if (user->is_here()) [[likely]] {
      user->add(1);
      fence();
      if (user_.load(std::memory_order_relaxed) == user) [[likely]]
        return user;
      user->add(-1);
    }
    return take_over(what);
  }
  User* take_over(std::string_view what);
  User& of_this_thread();
  User* own();

  /// The system can make all threads of the process pass a fence.
  static const bool kOthersFence;

  User nobody_;
  /// The thread that enters calls without a lock.
  std::atomic<User*> user_{&nobody_};
  std::atomic<User*> home_{nullptr};
  std::mutex mutex_;
  std::vector<std::unique_ptr<User>> users_;
  /// The last that entered.
  const User* last_ = nullptr;
  /// Two threads that are not the rank's own have met.
  bool is_contended_ = false;
};

}  // namespace weft
