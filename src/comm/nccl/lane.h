// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "src/comm/nccl/library.h"
#include "src/comm/nccl/watchdog.h"
#include "src/comm/signature.h"
#include "src/comm/world.h"

namespace weft {

/// A call on GPUs, in words for errors.
struct NcclCallName {
  std::string group;
  uint64_t number = 0;
  Signature signature = {};
  /// Calls of a graph are done together: up to which number.
  uint64_t last_of_graph = 0;

  /// "world/dp: nccl all_gather(f32, [16]) number 7".
  std::string title() const;
};

/// One rank's communicator of NCCL for what one of its streams is for, and the calls under way on
/// it. The watchdog ends it, and the world, when one of them is not done within the deadline.
class NcclLane final : private Watched {
 public:
  /// `group` is the host's end of the group, which outlives this. Called by all ranks of it, with
  /// one `id`; CommError naming `first` when they do not come within the deadline.
  NcclLane(const Transport& group, const nccl::UniqueId& id, Device device,
           const NcclCallName& first);
  ~NcclLane() override;
  NcclLane(const NcclLane&) = delete;
  NcclLane& operator=(const NcclLane&) = delete;

  /// A graph holds calls of it from now on.
  void outlives_calls() {
    const std::lock_guard lock(mutex_);
    is_recorded_ = true;
  }
  /// A call begins, and is watched from here on.
  void begin(const NcclCallName& call);
  /// Queues a part of the call. CommError when that fails.
  void queue(const NcclCallName& call, std::span<const nccl::Move> moves, const Stream& stream);
  /// All that began is queued, and done when `event` is.
  void queued(const std::shared_ptr<void>& event);
  /// CommError when the lane is of no more use, or the world has failed.
  void check(const NcclCallName& call);

 private:
  struct UnderWay {
    NcclCallName call;
    std::chrono::steady_clock::time_point since;
    /// Null until it is queued.
    std::shared_ptr<void> event = {};
  };

  /// CommError when a call of the calling thread's lanes was given up: what it should have made is
  /// not there.
  static void check_all_results();
  void check_results();
  void check_locked(const NcclCallName& call) const;
  void look() noexcept override;
  std::chrono::milliseconds period() const override;
  /// Returns when NCCL has begun what it was told to begin last.
  void await(const NcclCallName& call);
  void pass(std::chrono::steady_clock::time_point now);
  void look_at_front(std::chrono::steady_clock::time_point now);
  std::string who_has_ended() const;
  void fail_late(const NcclCallName& call);
  /// Ends the lane and the world. The mutex is held.
  void fail(const NcclCallName& call, const std::string& why, bool was_late);
  void end_at_once();
  bool finish_in_time();

  const Transport& group_;
  World& world_;
  const Device device_;
  const NcclCallName first_;
  /// What the owner's thread and the watchdog's do to the communicator.
  std::mutex mutex_;
  void* communicator_ = nullptr;
  std::exception_ptr failure_;
  std::deque<UnderWay> under_way_;
  bool is_recorded_ = false;
  /// This one among them.
  struct OfThread;
  const std::shared_ptr<OfThread> siblings_;
};

}  // namespace weft
