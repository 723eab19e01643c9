// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/flight/record.h"
#include "src/comm/mpi/mpi_transport.h"
#include "src/comm/mpi/routing.h"
#include "src/comm/waiter.h"
#include "src/comm/work_state.h"

namespace weft {

/// A call of one rank in progress. Messages advance it on whichever thread polls the engine.
/// Derived classes implement the kinds of calls.
class MpiWork : public Work::State {
 public:
  /// `number` is that of the collective or message, as shown in errors.
  MpiWork(MpiTransport& transport, uint64_t number);
  MpiWork(const MpiWork&) = delete;
  MpiWork& operator=(const MpiWork&) = delete;
  ~MpiWork() override = default;

  void wait() final;
  bool test() final;
  void drop() noexcept final;

  // The caller of all following functions holds the engine's lock.

  /// Starts the call.
  void start() noexcept;
  /// Handles a short message for this call.
  void receive(const MpiHeader& header, MpiPayload payload) noexcept;
  /// Handles the end of a transfer of this call.
  void transferred(uint64_t token) noexcept;
  bool is_done() const { return done_; }

 protected:
  virtual void post() = 0;
  virtual void take(const MpiHeader& header, MpiPayload payload) = 0;
  virtual void moved(uint64_t token) = 0;
  /// Stops routing messages to this call.
  virtual void leave() noexcept = 0;

  /// Ranks of the group that have not sent the message that this call waits for.
  virtual std::vector<int> silent() const = 0;
  /// Ranks that have, but whose transfers are incomplete.
  virtual std::vector<int> slow() const = 0;
  /// The action missing from a silent rank: "call it".
  virtual const char* missed() const = 0;
  /// "all_reduce(sum, f32, [16])".
  virtual std::string words() const = 0;
  /// "world: collective 7: ".
  virtual std::string prefix() const = 0;
  std::string title() const { return prefix() + words(); }

  /// Marks the call as complete.
  void finish() noexcept;
  /// Aborts the world with that error and throws it; `at_fault` is a rank of the group.
  [[noreturn]] void fail_with(const std::string& text, int at_fault, bool was_late = false);
  /// Adds bytes from other ranks; they count for the communicator when the caller sees the end.
  void add_received(int64_t bytes) { received_ += bytes; }

  MpiEngine& engine() const { return transport_.engine(); }
  const MpiGroup& group() const { return transport_.group(); }
  int rank() const { return transport_.rank(); }
  int size() const { return transport_.size(); }
  uint64_t number() const { return number_; }
  FlightOperation& flight() { return flight_; }

 private:
  template <class Step>
  void step(Step&& next) noexcept;
  void wait_quietly() noexcept;
  bool pause();
  void look_around() noexcept;
  void check_missing_ranks();
  [[noreturn]] void fail_late();
  [[noreturn]] void throw_echo() const;
  /// "rank 1 did not call it within 300 ms; there were rank 0, rank 2".
  std::string who_is_missing(const std::string& within) const;
  void count_received();
  void see_end();

  MpiTransport& transport_;
  const std::shared_ptr<Transport> keep_;
  const uint64_t number_;
  Waiter waiter_;
  /// Started and ended on the rank's thread.
  FlightOperation flight_;
  bool done_ = false;
  /// A transfer has completed since the last `look_around`.
  bool has_moved_ = false;
  int exceptions_;
  int64_t received_ = 0;
  std::exception_ptr error_;
};

}  // namespace weft
