// SPDX-License-Identifier: Apache-2.0
#include "src/comm/rank_thread.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "weft/error.h"

namespace weft {

const bool RankThread::kOthersFence =
    ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;

namespace {

/// Says that a thread has ended.
struct ThreadLife {
  const std::shared_ptr<std::atomic<bool>> has_ended = std::make_shared<std::atomic<bool>>(false);
  ~ThreadLife() { has_ended->store(true); }
};

}  // namespace

RankThread::User& RankThread::of_this_thread() {
  static thread_local const ThreadLife life;
  for (const auto& user : users_) {
    if (user->has_ended == life.has_ended) return *user;
  }
  // Never erased: another thread may be about to look at it.
  auto free = std::ranges::find_if(users_, [&](const auto& user) {
    return user.get() != home_.load() && user->has_ended->load() && !user->is_busy();
  });
  if (free == users_.end()) free = users_.insert(free, std::make_unique<User>());
  (*free)->thread = this_thread();
  (*free)->has_ended = life.has_ended;
  return **free;
}

RankThread::User* RankThread::own() {
  User* const user = user_.load(std::memory_order_acquire);
  if (user->is_here()) [[likely]]
    return user;
  const std::lock_guard lock(mutex_);
  return &of_this_thread();
}

RankThread::User* RankThread::take_over(std::string_view what) {
  const std::lock_guard lock(mutex_);
  User* const own = &of_this_thread();
  User* expected = nullptr;
  home_.compare_exchange_strong(expected, own);
  const User* const home = home_.load(std::memory_order_relaxed);
  const auto is_foreign = [&](const User* user) { return user && user != home && user != own; };
  user_.store(&nobody_, std::memory_order_seq_cst);
  if (kOthersFence) {
    ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  if (own->calls.load(std::memory_order_relaxed) == 0) {
    const auto other = std::ranges::find_if(
        users_, [&](const auto& user) { return user.get() != own && user->is_busy(); });
    const bool meets = other != users_.end();
    const bool follows = is_foreign(last_) && !last_->has_ended->load();
    if (own == home) {
      is_contended_ = is_contended_ && meets;
    } else if (follows || (meets && is_foreign(other->get()))) {
      is_contended_ = true;
    }
    if (meets || (is_contended_ && own != home)) {
      if (meets && !is_contended_) user_.store(other->get(), std::memory_order_release);
      fail(what,
           ": two threads of this rank make calls at once, expected one thread at a time for ",
           "the communicators and meshes of a rank; make these calls on one thread");
    }
  }
  own->add(1);
  last_ = own;
  if (!is_contended_) user_.store(own, std::memory_order_release);
  return own;
}

}  // namespace weft
