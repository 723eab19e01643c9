// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/dtype.h"
#include "weft/export.h"
#include "weft/placement.h"
#include "weft/stream.h"

namespace weft {

class Transport;

/// One array's share in a grouped collective. Rank r's part is `counts[r]` elements; the parts lie
/// one after the other in rank order. Which of `send` and `recv` is a part and which the whole is
/// said by each collective. `send` may be `recv`'s own place.
struct Piece {
  const void* send = nullptr;
  void* recv = nullptr;
  DType dtype = DType::f32;
  std::span<const int64_t> counts;
  /// reduce_scatter and all_reduce: dtype of `recv` when it is not that of `send`.
  DType recv_dtype = dtype;
  /// reduce_scatter: add to what `recv` holds.
  bool accumulate = false;
  /// Where the memory is. On a GPU the collective is in the order of its current stream.
  Device device = cpu;
};

/// A collective under way. It keeps what it needs alive; `wait` returns when the result is there
/// and the sent memory may be reused, or throws CommError. The destructor waits, within the
/// deadline; when an exception passes it, it ends the waits of all ranks instead. Belongs to its
/// rank's thread.
class [[nodiscard, gnu::visibility("default")]] Work {
 public:
  class State;
  /// Nothing under way.
  Work() noexcept;
  explicit Work(std::unique_ptr<State> state);
  Work(Work &&) noexcept;
  Work& operator=(Work&&) noexcept;
  ~Work();

  /// Meanwhile all pending Works of the rank make progress, so that they may be waited in any
  /// order.
  void wait();
  /// True when `wait` would return at once; makes progress.
  bool test();

 private:
  std::unique_ptr<State> state_;
};

/// How Works that are destroyed wait from now on, in this process: `around` calls `wait(work)`, and
/// may give up meanwhile what the other ranks need, such as the lock of an interpreter.
WEFT_API void wait_in_destructors_by(void (*around)(void (*wait)(void*), void* work));

/// Bytes this rank received from other ranks and calls it made, over one communicator.
struct CommunicatorTraffic {
  int64_t bytes = 0;
  int64_t collectives = 0;
};

/// A group of ranks that call collectives together, in the same order. A value handle; an empty one
/// (no group) stands for a group this rank is not in.
class WEFT_API Communicator {
 public:
  Communicator() = default;
  explicit Communicator(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {}

  int rank() const;
  int size() const;
  explicit operator bool() const { return transport_ != nullptr; }
  bool operator==(const Communicator&) const = default;
  /// Whether all ranks of `other` are among these; true for fake worlds, of which it is not known.
  bool contains(const Communicator& other) const;
  /// "world", "world/dp", ...: the name used in errors.
  const std::string& name() const;

  void barrier() const;
  /// recv: counts[0] elements, the same on each rank afterwards: root's.
  Work broadcast(std::span<const Piece> pieces, int root) const;
  /// Root's text, on each rank.
  std::string broadcast(std::string text, int root) const;
  /// send: own part, recv: the whole.
  Work all_gather(std::span<const Piece> pieces) const;
  /// send: the whole, recv: own part of the reduction.
  Work reduce_scatter(std::span<const Piece> pieces, ReduceOp op) const;
  /// send and recv: counts[0] elements.
  Work all_reduce(std::span<const Piece> pieces, ReduceOp op) const;
  /// Elements of an all_reduce of `count` that this rank reduces; it receives the other ranks' of
  /// these, and the results of the others.
  int64_t reduced_share(int64_t count) const;
  /// send: own part, recv: the whole on root, nothing elsewhere.
  Work gather(std::span<const Piece> pieces, int root) const;
  /// send: the whole on root, recv: own part.
  Work scatter(std::span<const Piece> pieces, int root) const;
  /// send: counts[r] elements for each rank r; recv: recv_counts[r] elements from each. On GPUs,
  /// between processes, it waits for the others' calls, to compare the counts.
  Work all_to_all(const Piece& piece, std::span<const int64_t> recv_counts) const;
  /// In memory 16 messages from one rank to another can be under way; more wait for one of them.
  Work send(const void* data, int64_t count, DType dtype, int to, int tag = 0) const;
  Work recv(void* data, int64_t count, DType dtype, int from, int tag = 0) const;

  /// Groups of equal `color`, ordered by (key, rank); a negative color joins none. Collective.
  Communicator split(int color, int key, std::string name) const;
  /// The group of `ranks` (of this communicator, in that order); called by its members only.
  Communicator subgroup(std::span<const int> ranks, std::string name) const;

  /// Ends the waits of all ranks of its world with a CommError that says `reason`. On any thread.
  void abort(const std::string& reason) const;

  const CommunicatorTraffic& traffic() const;
  const std::shared_ptr<Transport>& transport() const { return transport_; }

 private:
  std::shared_ptr<Transport> transport_;
};

/// Ranks that are processes reduce what is on their GPUs by messages, in the order of the ranks and
/// with sums of bf16 and f16 in f32: the bits are those of ranks that are threads, and do not
/// depend on NCCL, which is faster. Off unless the environment says WEFT_NCCL_DETERMINISTIC=1; the
/// same on all ranks of a process's job.
WEFT_API void reduce_in_rank_order(bool on);
WEFT_API bool reduces_in_rank_order();

}  // namespace weft
