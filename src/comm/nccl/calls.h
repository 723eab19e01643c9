// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "src/comm/collective_parts.h"
#include "src/comm/nccl/library.h"
#include "src/comm/signature.h"
#include "src/comm/world.h"
#include "weft/export.h"
#include "weft/storage.h"

namespace weft {

/// Local work of a rank after moves: reduces sources to a result, or copies one.
struct NcclStep {
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::f32;
  std::vector<const void*> sources = {};
  ReduceInto into = {};
  int64_t count = 0;
};

/// Moves that are queued as one group, and the steps after them.
struct NcclRound {
  std::vector<nccl::Move> moves = {};
  std::vector<NcclStep> steps = {};
};

/// One rank's part of a collective, as a sequence of NCCL moves and local steps.
struct NcclProgram {
  std::array<NcclRound, 2> rounds = {};
  /// Temporary memory of moves and steps, owned by the current stream.
  std::vector<Ref<Storage>> scratch = {};
};

/// Uses NCCL's collectives when all parts are equal, else messages. With `in_rank_order` reductions
/// use messages and `reduce_n`, with the same bits as between ranks in memory. The group of a send
/// or recv is a pair; the call's `root`, a rank of another group, is not used.
NcclProgram program_of(const Collective& call, int rank, int size, bool in_rank_order);

/// Queues a step on the current stream of its device.
void run_step(const NcclStep& step);

/// Identifies a call on GPUs in error messages.
struct NcclCallName {
  std::string group;
  uint64_t number = 0;
  Signature signature = {};
  /// Calls of a graph are replayed together: the number of the last one.
  uint64_t last_of_graph = 0;

  /// "world/dp: nccl all_gather(f32, [16]) number 7".
  std::string title() const;
};

/// Detects ranks that make different calls on their GPUs: NCCL would hang or compute wrong numbers.
/// Ranks compare their calls, over the host, at the first call, every 64th and each all_to_all. A
/// difference in between hangs or gives wrong numbers until then.
class NcclAgreement {
 public:
  static constexpr uint64_t kCalls = 64;

  /// `host` is an end of a group of the same ranks.
  NcclAgreement(std::shared_ptr<const Members> group, std::shared_ptr<Transport> host)
      : group_(std::move(group)),
        host_transport_(std::move(host)),
        hashes_(kCalls),
        calls_(kCalls) {}

  /// Records a call and its variant; CommError naming a rank and a call when ranks differ.
  void add(const NcclCallName& call, uint64_t variant);
  /// Compares the calls so far, and an all_to_all's counts pair by pair; CommError naming a call or
  /// a pair that differs.
  void compare_counts(const NcclCallName& call, std::span<const int64_t> sent,
                      std::span<const int64_t> expected);

 private:
  void compare();
  /// Aborts the world with the first call in which a rank differs from rank 0, and throws.
  [[noreturn]] void fail_diverged();
  /// Aborts the world with that text; `at_fault` is a rank of the group.
  [[noreturn]] void fail(const NcclCallName& call, int at_fault, const std::string& text);
  template <class T> std::vector<T> gathered(std::span<const T> own) const;

  std::shared_ptr<const Members> group_;
  std::shared_ptr<Transport> host_transport_;
  uint64_t last_ = 0, hash_ = 0;
  /// The last calls, by number.
  std::vector<uint64_t> hashes_;
  std::vector<NcclCallName> calls_;
};

/// One rank's NCCL communicator for one stream role, and the calls in progress on it. When a rank
/// has died, or a call is not done within the deadline, the watchdog aborts the communicator and
/// the world.
class NcclLane : NotCopied {
 public:
  /// Called by all ranks of `group` with the same `id`; CommError naming `first` when they do not
  /// call within the deadline.
  NcclLane(std::shared_ptr<const Members> group, int rank, const nccl::UniqueId& id, Device device,
           const NcclCallName& first);
  ~NcclLane();

  /// Marks the communicator as used by a graph.
  void outlives_calls() {
    const std::lock_guard lock(mutex_);
    is_recorded_ = true;
  }
  /// Starts a call; the watchdog watches it from here on.
  void begin(const NcclCallName& call);
  /// Queues a part of the call. CommError when it is not queued within the deadline or the world
  /// fails, std::runtime_error when NCCL refuses it.
  void queue(const NcclCallName& call, std::span<const nccl::Move> moves, const Stream& stream);
  /// Marks all started calls as queued; they are done when `event` is reached.
  void queued(const Event& event);
  /// Throws CommError when the lane is unusable or the world has failed.
  void check(const NcclCallName& call);

 private:
  struct UnderWay {
    NcclCallName call;
    std::chrono::steady_clock::time_point since;
    /// Empty until the call is queued.
    Event event = {};
  };

  /// Throws CommError when a call on the calling thread's lanes was aborted: its results are
  /// invalid.
  static void check_all_results();
  void check_locked(const NcclCallName& call) const;
  /// The call to name in errors.
  const NcclCallName& front() const {
    return under_way_.empty() ? first_ : under_way_.front().call;
  }
  /// The watchdog: looks now and then, on a separate thread, because the owner may be blocked on a
  /// GPU. Does not wait for the owner.
  void watch(const std::stop_token& stop);
  void look() noexcept;
  /// Returns when NCCL has started the last operation.
  void await(const NcclCallName& call);
  void look_at_front(std::chrono::steady_clock::time_point now);
  void fail_late(const NcclCallName& call);
  /// Fails when the process of a rank of the group has died.
  bool fail_if_dead(const NcclCallName& call);
  /// Aborts the lane and the world; `at_fault` is a rank of the group, or -1. The caller holds the
  /// mutex.
  void fail(const NcclCallName& call, const std::string& why, bool was_late, int at_fault = -1);
  void end_at_once();
  bool finish_in_time();

  const std::shared_ptr<const Members> group_;
  const int rank_;
  World& world_;
  const Device device_;
  const NcclCallName first_;
  /// Serialises the owner's and the watchdog's use of the communicator.
  std::mutex mutex_;
  void* communicator_ = nullptr;
  std::exception_ptr failure_;
  std::deque<UnderWay> under_way_;
  bool is_recorded_ = false;
  /// The lanes of the owner's thread, including this one.
  struct OfThread;
  const std::shared_ptr<OfThread> siblings_;
  std::jthread watchdog_;
};

/// Returns one rank's end of a group whose ranks cannot access each other's GPUs: GPU memory is
/// exchanged by NCCL, all else by `host`, which must have a world. Returns `host` in a build
/// without NCCL, and where its library is missing.
#ifdef WEFT_WITH_NCCL
std::shared_ptr<Transport> with_nccl(std::shared_ptr<Transport> host);
#else
inline std::shared_ptr<Transport> with_nccl(std::shared_ptr<Transport> host) { return host; }
#endif

}  // namespace weft
