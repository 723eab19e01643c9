// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include "src/comm/flight/record.h"
#include "src/comm/transport.h"
#include "src/comm/waiter.h"
#include "src/comm/world.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/export.h"

namespace weft {

/// A call of one rank, in memory or over MPI, that has begun and not ended. Owns the deadline, the
/// diagnosis of ranks that are late or gone, and the text of every error; derived classes say how
/// to poll and which ranks are missing. A linked call also advances while its thread waits for
/// another one.
///
///   Work::State <- Waitable <- PendingWork (memory) <- ExchangeWork, MessageWork, ReadersWork
///                           <- MpiWork <- MpiCollective, MpiMessage
///               <- NcclWork, whose calls the watchdog diagnoses
class Waitable : public Work::State, NotCopied {
 public:
  /// Marks the numbers of messages, which are counted apart from collectives.
  static constexpr uint64_t kMessage = uint64_t{1} << 63;

  Waitable(const Members& group, int rank, uint64_t sequence);
  ~Waitable() override { unlink(); }

  void wait() override;
  bool test() final;
  void drop() noexcept override;

  /// As `wait`, but stores an error for a later `wait` to throw.
  void wait_quietly() noexcept;
  /// Advances the linked calls of the calling thread, except one.
  static void advance_linked(const Waitable* except = nullptr) noexcept;
  /// The calling thread's linked call of that group and number, or null.
  static Waitable* find(const Members& group, uint64_t sequence);

 protected:
  /// Does what can be done now; returns true when nothing is left to do.
  virtual bool advance() = 0;
  /// The ranks of the group for which this call waits now.
  virtual std::vector<int> missing() const = 0;
  /// The step that a missing rank has not done: "call it".
  virtual const char* missed(int rank) const = 0;
  /// How a missing rank went away ("ended"); empty while it may still come.
  virtual std::string departure(int rank) const;
  /// False when the missing ranks are only awaited until the deadline, whether they go away or not.
  virtual bool heeds_departures() const { return true; }
  /// How long after the deadline these missing ranks, or ranks that wait for them, may fail first.
  virtual std::chrono::milliseconds grace(const std::vector<int>& ranks) const;
  /// Returns when no other rank uses this one's memory for this call. Called after an abort.
  virtual void await_release() noexcept = 0;
  /// Called after a wait that succeeded.
  virtual void joined() {}
  /// Returns false while a GPU still works for this call, which `advance` has ended.
  virtual bool is_complete() const { return true; }
  /// "all_reduce(sum, f32, [16])".
  virtual std::string words() const = 0;

  void link() noexcept;
  bool try_to_advance() noexcept;
  /// Restarts the deadline: at each `wait`, and after each phase or transfer.
  void wait_anew() { waiter_ = Waiter(world_.spins()); }

  /// "world: collective 7: ".
  std::string prefix() const;
  /// "world: collective 7: all_reduce(sum, f32, [16])".
  std::string title() const;
  /// Aborts the world with that error and throws it; `at_fault` is a rank of the group.
  [[noreturn]] void fail_with(const std::string& text, int at_fault, bool was_late = false) const;
  /// Fails because `rank` called something else than rank 0.
  [[noreturn]] void fail_unequal(const Signature& first, int rank, const Signature& other) const;
  /// Fails because `rank` sent a message of another dtype or size.
  [[noreturn]] void fail_message(int rank, DType dtype, int64_t count) const;

  /// Counts the call (a message's Collective, or a Signature) in its group's traffic and adds it to
  /// the rank's flight record, if it keeps one.
  template <class Call> void record(const Call& call, CommunicatorTraffic& traffic) {
    traffic_ = &traffic;
    ++traffic.collectives;
    if (FlightRecord* kept = Context::current().flight.get()) {
      flight_ = kept->begin(members_.name, signature_of(call), number());
    }
  }
  /// Adds bytes from other ranks to both. To be called after `record`, by the rank's thread.
  void received(int64_t bytes) {
    traffic_->bytes += bytes;
    flight_.received(bytes);
  }

  World& world() const { return world_; }
  int rank() const { return rank_; }
  uint64_t sequence() const { return sequence_; }
  /// The sequence without the message mark, for people.
  uint64_t number() const { return sequence_ & ~kMessage; }
  FlightOperation& flight() { return flight_; }
  Waiter& waiter() { return waiter_; }
  std::chrono::nanoseconds waited() const { return waiter_.waited(); }

  const Members& members_;

 private:
  void leave() noexcept;
  /// Reports that this rank waits, and ends the call if the world failed or a missing rank is gone
  /// or late.
  void look_for_failures();
  void check_missing_ranks();
  [[noreturn]] void throw_echo() const;
  std::string in_words(const std::vector<int>& ranks, const std::string& within) const;
  void end_with_current_exception() noexcept;
  void finish() noexcept;
  void unlink() noexcept;

  World& world_;
  const int rank_;
  const uint64_t sequence_;
  Waiter waiter_;
  FlightOperation flight_;
  /// That of the group's transport, which lives longer.
  CommunicatorTraffic* traffic_ = nullptr;
  bool done_ = false;
  bool advancing_ = false;
  bool linked_ = false;
  int exceptions_;
  std::exception_ptr error_ = {};
  Waitable* previous_ = nullptr;
  Waitable* next_ = nullptr;
};

}  // namespace weft
