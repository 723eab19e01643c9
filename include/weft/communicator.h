// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/dtype.h"
#include "weft/export.h"
#include "weft/reduce_op.h"
#include "weft/stream.h"

namespace weft {

class Transport;

/// One array's share in a grouped collective. Rank r's part is `counts[r]` elements; the parts are
/// concatenated in rank order. Each collective documents which of `send` and `recv` is a part and
/// which is the whole array. `send` may point to this rank's part of `recv`.
struct Piece {
  const void* send = nullptr;
  void* recv = nullptr;
  DType dtype = DType::f32;
  std::span<const int64_t> counts;
  /// reduce_scatter and all_reduce: the dtype of `recv` when it differs from that of `send`.
  DType recv_dtype = dtype;
  /// reduce_scatter: adds the result to the contents of `recv`.
  bool accumulate = false;
  /// The device of the memory. On a GPU the collective is ordered by the device's current stream.
  Device device = cpu;
};

/// A collective or message in progress. It keeps the objects it uses alive. The destructor waits,
/// within the deadline; during stack unwinding it aborts the waits of all ranks instead. May be
/// used only on its rank's thread.
class [[nodiscard, gnu::visibility("default")]] Work {
 public:
  class State;
  /// A Work with no operation in progress.
  Work() noexcept;
  explicit Work(std::unique_ptr<State> state);
  Work(Work &&) noexcept;
  Work& operator=(Work&&) noexcept;
  ~Work();

  /// Blocks until the result is complete and the sent memory may be reused; CommError when that
  /// fails. All pending Works of the rank make progress meanwhile, so they may be waited for in any
  /// order. For memory on GPUs it waits for the other ranks' calls only (NCCL: not even for these),
  /// and makes the current stream wait for the operation: work queued later sees the result.
  void wait();
  /// Returns true when the operation is complete, on GPUs too; makes progress.
  bool test();

 private:
  std::unique_ptr<State> state_;
};

/// Sets how destructors of Works wait, for this process: they call `around`, which must call
/// `wait(work)` and may release locks around it that other ranks need, such as Python's GIL.
WEFT_API void wait_in_destructors_by(void (*around)(void (*wait)(void*), void* work));

/// Bytes that this rank received over one communicator, and its calls.
struct CommunicatorTraffic {
  int64_t bytes = 0;
  /// Collectives, sends and receives.
  int64_t collectives = 0;
};

/// A group of ranks that call collectives together, in the same order. Handles are values; an empty
/// handle stands for a group that this rank does not belong to.
class WEFT_API Communicator {
 public:
  Communicator() = default;
  explicit Communicator(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {}

  int rank() const;
  int size() const;
  explicit operator bool() const { return transport_ != nullptr; }
  bool operator==(const Communicator&) const = default;
  /// Returns whether all ranks of `other` are in this group; true (unknown) for fake worlds.
  bool contains(const Communicator& other) const;
  /// "world", "world/dp", ...: the name used in errors.
  const std::string& name() const;

  void barrier() const;
  /// Copies root's counts[0] elements into `recv` on every rank.
  Work broadcast(std::span<const Piece> pieces, int root) const;
  /// Returns root's text on every rank.
  std::string broadcast(std::string text, int root) const;
  /// send: this rank's part; recv: the whole array.
  Work all_gather(std::span<const Piece> pieces) const;
  /// send: the whole array; recv: this rank's part of the reduction.
  Work reduce_scatter(std::span<const Piece> pieces, ReduceOp op) const;
  /// send and recv: counts[0] elements.
  Work all_reduce(std::span<const Piece> pieces, ReduceOp op) const;
  /// Returns how many elements of an all_reduce of `count` elements this rank reduces. The rank
  /// receives the other ranks' values of those elements and the reduced values of all others.
  int64_t reduced_share(int64_t count) const;
  /// send: this rank's part; recv: the whole array on root, unused on other ranks.
  Work gather(std::span<const Piece> pieces, int root) const;
  /// send: the whole array on root; recv: this rank's part.
  Work scatter(std::span<const Piece> pieces, int root) const;
  /// send: counts[r] elements for each rank r; recv: recv_counts[r] elements from each rank r. On
  /// GPUs, between processes, the call waits for the other ranks' calls, to compare counts.
  Work all_to_all(const Piece& piece, std::span<const int64_t> recv_counts) const;

  // The same for a few numbers of the host; these return when they are complete.

  /// Returns the reduction of the ranks' numbers.
  int64_t all_reduce_number(int64_t number, ReduceOp op) const;
  /// Replaces each number by the reduction of the ranks' numbers at its place.
  void all_reduce_numbers(std::span<int64_t> numbers, ReduceOp op) const;
  /// Returns the numbers of all ranks, equally many of each, in rank order.
  std::vector<int64_t> all_gather_numbers(std::span<const int64_t> numbers) const;
  /// Sends numbers[r] to each rank r, and returns the numbers that the ranks sent to this one.
  std::vector<int64_t> all_to_all_numbers(std::span<const int64_t> numbers) const;

  /// On one host 16 messages from one rank to another may be in flight; further ones wait.
  Work send(const void* data, int64_t count, DType dtype, int to, int tag = 0) const;
  Work recv(void* data, int64_t count, DType dtype, int from, int tag = 0) const;

  /// Groups the ranks of equal `color` by (key, rank); a negative color joins none. Collective.
  Communicator split(int color, int key, std::string name) const;
  /// Returns the group of `ranks` (of this communicator, in that order). Called by its members.
  Communicator subgroup(std::span<const int> ranks, std::string name) const;

  /// Ends the waits of all ranks of its world with a CommError containing `reason`. Thread-safe.
  void abort(const std::string& reason) const;

  const CommunicatorTraffic& traffic() const;
  const std::shared_ptr<Transport>& transport() const { return transport_; }

 private:
  std::shared_ptr<Transport> transport_;
};

/// Throws std::invalid_argument on all ranks, with the text of the first rank that gives one; does
/// nothing when all texts are empty. Collective: for checks that only some ranks fail.
WEFT_API void fail_on_all_ranks(const Communicator& ranks, const std::string& mistake);

/// Returns or throws on all ranks of `world` what `find` returns or throws on the first, which
/// alone calls it. Collective.
WEFT_API std::string told_by_first(const Communicator& world,
                                   const std::function<std::string()>& find);

/// A simulated communicator of `size` ranks of which only `rank` exists: collectives move nothing
/// but count the bytes that `rank` would receive; its own parts are copied. `ranks_per_host` tells
/// planning where the slow links are, `in_memory` whether ranks read each other's memory, as
/// threads do.
WEFT_API Communicator fake_world(int rank, int size, int ranks_per_host = 8, bool in_memory = true);

}  // namespace weft
