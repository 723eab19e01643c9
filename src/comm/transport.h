// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/block.h"
#include "weft/communicator.h"

namespace weft {

class World;

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

/// One collective call of one rank, with checked arguments. What it points to lives until `start`
/// returns (the memory of the pieces until the Work is done).
struct Collective {
  CollectiveKind kind = CollectiveKind::barrier;
  ReduceOp op = ReduceOp::sum;
  /// Of broadcast, gather and scatter; the other rank of send and recv.
  int root = 0;
  /// Of send and recv.
  int tag = 0;
  std::span<const Piece> pieces = {};
  /// Of all_to_all.
  std::span<const int64_t> recv_counts = {};
  /// What other processes are shown of a call in several rounds: `send` leads to the first of two
  /// halves, that many bytes apart, which hold what each round sends in turn; `recv` of an
  /// all_reduce to what the round has reduced.
  int rounds = 1;
  size_t half_bytes = 0;
};

/// What a rank of an exchange does when all have shown their blocks.
class ExchangeReader {
 public:
  virtual ~ExchangeReader() = default;
  /// How often the phases are gone through, one round after the other; asked once, before the
  /// first.
  virtual int rounds(std::span<const void* const>) { return 1; }
  /// Reads what the ranks show in this phase and returns the bytes that came from other ranks.
  /// `shown[r]` leads to the first of rank r's `Exchange::blocks`. Called once a phase, in order;
  /// phase p begins when all ranks have ended phase p - 1. A null pointer stands for a rank that is
  /// not there (a fake world): its bytes are counted, not read. May throw (the world is then
  /// aborted), may not communicate.
  virtual int64_t read(int phase, std::span<const void* const> shown) = 0;
};

/// One rank's part in an exchange.
struct Exchange {
  /// What the others see: one block a phase; that of phase p holds its elements when this rank has
  /// ended phase p - 1. Valid until the exchange has ended.
  std::span<const Block> blocks = {};
  /// Equal on all ranks, or the exchange fails on all of them.
  uint64_t content = 0;
  /// The call in words, for errors ("redistribute(f32, [8, 4], S(0) -> R)"); the first 80
  /// characters are kept.
  std::string_view words = {};

  /// 1 to 6.
  int phases() const { return static_cast<int>(blocks.size()); }
};

/// One rank's end of a group of ranks: all that a kind of interconnect has to give. Belongs to the
/// rank's thread. A group of one rank never calls `start`.
class Transport : public std::enable_shared_from_this<Transport> {
 public:
  virtual ~Transport() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  virtual const CommunicatorTraffic& traffic() const { return traffic_; }

  /// The host that a rank of this group is on, counted from 0: where the slow links are.
  virtual int host_of(int rank) const = 0;
  /// True when ranks read each other's memory on devices of that kind: `exchange` is there, and
  /// plans are made of it.
  virtual bool in_memory(DeviceKind kind = DeviceKind::cpu) const = 0;

  virtual Work start(const Collective& call) = 0;
  /// `start` and `wait`.
  virtual void run(const Collective& call) { start(call).wait(); }

  /// Runs an exchange to its end. Only where `in_memory`.
  virtual void exchange(const Exchange& call, ExchangeReader& reader) = 0;
  /// The same as a Work. What `call` leads to lives until it is done; the reader is kept.
  virtual Work start_exchange(const Exchange& call, std::unique_ptr<ExchangeReader> reader) = 0;

  /// Groups of equal `color`, ordered by (key, rank); null for a negative color. Collective.
  virtual std::shared_ptr<Transport> split(int color, int key, std::string name);
  /// The group of `ranks`, this one among them; called by its members alone.
  virtual std::shared_ptr<Transport> subgroup(std::span<const int> ranks, std::string name) = 0;

  /// Ends the waits of all ranks of the world with a CommError that says `reason`.
  virtual void abort(const std::string& reason) = 0;

  /// What the ranks share that fail together; null where they are not there.
  virtual World* world() const { return nullptr; }
  /// The ranks of this group, as the world counts them.
  virtual std::span<const int> world_ranks() const { return {}; }

 protected:
  Transport(int rank, int size, std::string name)
      : rank_(rank), size_(size), name_(std::move(name)) {}

  int rank_;
  int size_;
  std::string name_;
  CommunicatorTraffic traffic_;
};

}  // namespace weft
