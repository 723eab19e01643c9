// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/numeric.h"
#include "src/comm/exchange.h"
#include "src/comm/rank_thread.h"
#include "weft/block.h"
#include "weft/communicator.h"

namespace weft {

class World;

/// The ranks of a group.
struct Members {
  /// Unique among the groups of a world; 0 is the world.
  uint64_t id = 0;
  std::string name = {};
  /// Their numbers in the world.
  std::vector<int> world_ranks = {};
  /// Their hosts, counted from 0; empty: all are on one.
  std::vector<int> hosts = {};
  /// The state shared by the ranks that fail together; null in a simulated world.
  std::shared_ptr<World> world = {};
  /// The names that `in_words` returns for a group that the user did not make; else empty.
  std::vector<std::string> names = {};

  int size() const { return static_cast<int>(world_ranks.size()); }
  int world_rank(int rank) const { return world_ranks[static_cast<size_t>(rank)]; }
  /// "rank 1", or "rank 1 (rank 5 of the world)" in a group other than the world.
  std::string in_words(int rank) const;
};

/// The implementation of a Work.
class Work::State {
 public:
  virtual ~State() = default;
  virtual void wait() = 0;
  virtual bool test() = 0;
  /// Ends the call without throwing: waits, or gives up the collective during stack unwinding.
  virtual void drop() noexcept = 0;

  /// Returns `work`, a call of the calling thread.
  static Work started(Work work, const std::shared_ptr<RankThread>& rank) {
    if (work.state_) work.state_->started_.emplace(rank);
    return work;
  }
  /// Null for a call within another one.
  RankThread* rank_thread() const { return started_ ? &started_->rank() : nullptr; }
  bool may_end_here() const { return !started_ || started_->may_end_here(); }

 private:
  std::optional<RankThread::Started> started_;
};

enum class CollectiveKind : uint8_t {
  barrier,
  broadcast,
  all_gather,
  reduce_scatter,
  all_reduce,
  gather,
  scatter,
  all_to_all,
  send,
  recv,
  exchange
};
std::string_view name_of(CollectiveKind kind);
constexpr bool is_message(CollectiveKind kind) {
  return kind == CollectiveKind::send || kind == CollectiveKind::recv;
}
constexpr bool is_reduction(CollectiveKind kind) {
  return kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_reduce;
}

/// One collective call of one rank, with checked arguments. The data it points to must live until
/// `start` returns; the memory of the pieces, until the Work is done.
struct Collective {
  CollectiveKind kind = CollectiveKind::barrier;
  ReduceOp op = ReduceOp::sum;
  /// The root of broadcast, gather and scatter; the other rank of send and recv.
  int root = 0;
  /// The tag of send and recv.
  int tag = 0;
  std::span<const Piece> pieces = {};
  /// Used by all_to_all.
  std::span<const int64_t> recv_counts = {};
  /// Set only in the copy that a process publishes of a call in several rounds, by its staging
  /// buffer; callers leave them. `send` then points to the first of two halves, `half_bytes` apart,
  /// which hold the data of the rounds alternately; `recv` of an all_reduce points to the elements
  /// reduced in the round.
  int rounds = 1;
  size_t half_bytes = 0;
};

/// Values that a rank says are equal on all ranks. They are compared with the next collective: a
/// claim itself sends nothing.
struct Claim {
  /// 0 in a Signature without a claim.
  uint64_t hash = 0;
  /// The first values claimed: "distribute(f32, [4, 8])".
  std::array<char, 56> words{};
};

/// One rank's end of a group of ranks, implemented for each kind of interconnect. Belongs to the
/// rank's thread. A group of one rank never calls `start`.
class Transport : public std::enable_shared_from_this<Transport> {
 public:
  virtual ~Transport() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::shared_ptr<const Members>& members() const { return members_; }
  const std::string& name() const { return members_->name; }
  World* world() const { return members_->world.get(); }
  /// The host of a rank of this group, counted from 0. Links between hosts are the slow ones.
  int host_of(int rank) const {
    return members_->hosts.empty() ? 0 : members_->hosts[static_cast<size_t>(rank)];
  }
  virtual const CommunicatorTraffic& traffic() const { return traffic_; }
  const std::shared_ptr<RankThread>& rank_thread() const { return rank_thread_; }
  void share_thread_of(const Transport& parent) { rank_thread_ = parent.rank_thread_; }
  /// The counters to which this end's calls add; others while they do not count.
  CommunicatorTraffic& counters() { return is_counted_ ? traffic_ : uncounted_; }
  virtual void count(bool calls) { is_counted_ = calls; }
  /// Claims values of that hash, until the next collective of this group.
  virtual void claim(uint64_t hash, std::string_view words);
  virtual std::optional<Claim> take_claim();
  uint64_t next_of_kind(uint64_t kind);
  /// Returns true when ranks read each other's memory on devices of that kind: `exchange` is
  /// supported, and plans use it.
  virtual bool in_memory(DeviceKind kind = DeviceKind::cpu) const = 0;

  virtual Work start(const Collective& call) = 0;
  virtual void run(const Collective& call) { start(call).wait(); }

  /// Runs an exchange to its end. std::invalid_argument where not `in_memory`.
  virtual void exchange(const Exchange& call, ExchangeReader& reader);

  /// Makes the groups of equal `color`, ordered by (key, rank); null for a negative color.
  /// Collective.
  virtual std::shared_ptr<Transport> split(int color, int key, std::string name);
  /// Makes the group of `ranks`, which include this one; called by its members only.
  virtual std::shared_ptr<Transport> subgroup(std::span<const int> ranks, std::string name) = 0;

  /// Ends the waits of all ranks of the world with a CommError that says `reason`.
  virtual void abort(const std::string& reason);

 protected:
  Transport(int rank, std::shared_ptr<const Members> members)
      : rank_(rank), size_(members->size()), members_(std::move(members)) {}
  /// The members of a new group of `ranks`, equal on all of these.
  Members subgroup_of(std::span<const int> ranks, std::string name);
  /// The index of this rank among `ranks` of the group, which include it.
  int index_among(std::span<const int> ranks) const;

  int rank_;
  int size_;
  const std::shared_ptr<const Members> members_;
  CommunicatorTraffic traffic_, uncounted_;
  bool is_counted_ = true;
  std::optional<Claim> claim_;

 private:
  std::shared_ptr<RankThread> rank_thread_ = std::make_shared<RankThread>();
  /// The number of times that this rank made each subgroup.
  std::map<std::vector<int>, uint64_t> subgroups_;
  std::map<uint64_t, uint64_t> kinds_;
};

/// A collective of a group on the calling thread. The ranks compare whether each makes it on its
/// own thread.
class GroupCall : public RankThread::Call {
 public:
  GroupCall(Transport& group, CollectiveKind kind) : Call(*group.rank_thread(), name_of(kind)) {
    if (group.rank_thread()->is_moved() && !is_message(kind) && group.size() > 1) {
      group.claim(kMovedClaim, kMovedWords);
    }
  }

  static constexpr uint64_t kMovedClaim = 0x6d6f766564;
  static constexpr std::string_view kMovedWords = "it on another thread";
};

/// Throws std::invalid_argument: the ranks of the group are processes, and this build lacks NCCL.
[[noreturn]] void refuse_device_memory(const std::string& group, Device device);

}  // namespace weft
