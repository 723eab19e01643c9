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

/// Implements what a rank of an exchange does once all ranks have published their blocks.
class ExchangeReader {
 public:
  virtual ~ExchangeReader() = default;
  /// The number of rounds, each of which runs all phases; called once, before the first.
  virtual int rounds(std::span<const void* const>) { return 1; }
  /// Reads what the ranks have published for this phase and returns the bytes that came from other
  /// ranks. `shown[r]` points to the first of rank r's `Exchange::blocks`. Called once a phase, in
  /// order; phase p begins when all ranks have ended phase p - 1. A null pointer stands for a rank
  /// that does not exist (a fake world): its bytes are counted, not read. May throw, which aborts
  /// the world; must not communicate.
  virtual int64_t read(int phase, std::span<const void* const> shown) = 0;
};

/// The most phases of an exchange.
inline constexpr int kMaxPhases = 6;

/// One rank's part in an exchange.
struct Exchange {
  /// The published blocks, one a phase; the block of phase p holds its elements once this rank has
  /// ended phase p - 1. Valid until the exchange has ended.
  std::span<const MemoryBlock> blocks = {};
  /// A hash that must be equal on all ranks; otherwise the exchange fails on all of them.
  uint64_t content = 0;
  /// A description of the call for errors ("redistribute(f32, [8, 4], S(0) -> R)"), of which the
  /// first 80 characters are kept.
  std::string_view words = {};

  /// 1 to kMaxPhases.
  int phases() const { return static_cast<int>(blocks.size()); }
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
  /// The counters to which this end's calls add.
  CommunicatorTraffic& counters() { return traffic_; }

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
  CommunicatorTraffic traffic_;
  std::optional<Claim> claim_;

 private:
  /// The number of times that this rank made each subgroup.
  std::map<std::vector<int>, uint64_t> subgroups_;
  std::map<uint64_t, uint64_t> kinds_;
};

/// Throws std::invalid_argument: the ranks of the group are processes, and this build lacks NCCL.
[[noreturn]] void refuse_device_memory(const std::string& group, Device device);

}  // namespace weft
