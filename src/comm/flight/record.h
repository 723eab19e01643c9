// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/ticks.h"
#include "src/comm/signature.h"
#include "weft/export.h"
#include "weft/stream.h"

namespace weft {

enum class FlightState : uint64_t { posted, running, done, failed };
std::string_view name_of(FlightState state);

/// One recorded operation. Times are ticks; 0: not yet.
struct FlightCopy {
  /// Counted over all operations of the rank, from 1.
  uint64_t number = 0;
  /// Counted by communicator; messages are counted separately.
  uint64_t sequence = 0;
  int64_t posted = 0, started = 0, ended = 0;
  /// Bytes received from other ranks so far.
  int64_t bytes = 0;
  FlightState state = FlightState::posted;
  /// The name of the communicator, truncated to 31 characters.
  std::array<char, 32> communicator{};
  /// Fields that this call does not use have any value, also the words of an absent claim.
  Signature call;

  std::string in_words() const { return weft::in_words(call); }
};

/// Is notified of the operations of a rank as they end, on the rank's thread, and of their GPU
/// work.
class FlightListener {
 public:
  virtual ~FlightListener() = default;
  virtual void ended(const FlightCopy& operation) = 0;
  /// The GPU work of an operation lies between two points of its stream: the current point, and
  /// that of `ends_on`.
  virtual void begins_on(uint64_t operation, const Stream& stream) = 0;
  virtual void ends_on(uint64_t operation) = 0;
};

class FlightOperation;

/// The last operations of one rank. The rank's thread writes, without locks or allocation (over MPI
/// the engine's thread may write that an operation runs); any other thread may read meanwhile.
class FlightRecord : public std::enable_shared_from_this<FlightRecord>, NotCopied {
 public:
  static constexpr uint64_t kEntries = 1024;

  FlightRecord(int rank, int ranks) : rank_(rank), ranks_(ranks), entries_(kEntries) {}

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  /// Records a posted operation.
  FlightOperation begin(std::string_view communicator, const Signature& signature,
                        uint64_t sequence);

  /// The number of operations so far.
  uint64_t count() const { return count_.load(std::memory_order_acquire); }
  /// The recorded operations that are not yet overwritten, the oldest first.
  std::vector<FlightCopy> operations() const;
  /// Formats the record as one JSON object; `reason` tells why it was written.
  std::string json(std::string_view reason) const;

  void set_listener(FlightListener* listener) { listener_ = listener; }

 private:
  friend class FlightOperation;
  static constexpr size_t kWords = sizeof(FlightCopy) / 8;
  static_assert(sizeof(FlightCopy) % 8 == 0 && offsetof(Signature, shown) % 8 == 0 &&
                offsetof(Signature, words) % 8 == 0 && offsetof(Signature, subject) % 8 == 0 &&
                offsetof(Signature, claim) % 8 == 0);
  /// The words of a FlightCopy, each written at once, which a reader may see while they change. The
  /// number is 0 while a new operation replaces an old one.
  struct alignas(64) Entry : std::array<std::atomic<uint64_t>, kWords> {
    template <class T> void set(size_t word, T value) {
      (*this)[word].store(static_cast<uint64_t>(value), std::memory_order_release);
    }
  };
  static constexpr size_t kNumber = offsetof(FlightCopy, number) / 8;
  static constexpr size_t kSequence = offsetof(FlightCopy, sequence) / 8;
  static constexpr size_t kPosted = offsetof(FlightCopy, posted) / 8;
  static constexpr size_t kStarted = offsetof(FlightCopy, started) / 8;
  static constexpr size_t kEnded = offsetof(FlightCopy, ended) / 8;
  static constexpr size_t kBytes = offsetof(FlightCopy, bytes) / 8;
  static constexpr size_t kState = offsetof(FlightCopy, state) / 8;
  static constexpr size_t kCall = offsetof(FlightCopy, call) / 8;
  static constexpr size_t kName = offsetof(FlightCopy, communicator) / 8;
  Entry& entry(uint64_t number) { return entries_[number % kEntries]; }
  bool copy(uint64_t number, FlightCopy& into) const;
  void tell(uint64_t number);

  const int rank_;
  const int ranks_;
  std::atomic<uint64_t> count_{0};
  std::vector<Entry> entries_;
  FlightListener* listener_ = nullptr;
};

/// One pending operation; a default one is not recorded.
class FlightOperation {
 public:
  FlightOperation() = default;
  /// All ranks have arrived.
  void started() {
    if (!record_) return;
    auto& entry = record_->entry(number_);
    // Overwritten: kEntries newer operations have begun since.
    if (entry[FlightRecord::kNumber].load(std::memory_order_relaxed) != number_) return;
    entry.set(FlightRecord::kStarted, ticks_now());
    entry.set(FlightRecord::kState, FlightState::running);
  }
  void received(int64_t bytes) { bytes_ += bytes; }
  /// Called around the work that is queued on a GPU's stream.
  void begins_on(const Stream& stream) {
    if (FlightListener* listener = listener_on(stream)) listener->begins_on(number_, stream);
  }
  void ends_on(const Stream& stream) {
    if (FlightListener* listener = listener_on(stream)) listener->ends_on(number_);
  }
  /// Only the first of these calls counts.
  void ended() { end(FlightState::done); }
  void failed() { end(FlightState::failed); }

 private:
  friend class FlightRecord;
  FlightOperation(FlightRecord& record, uint64_t number)
      : record_(&record), kept_(record.weak_from_this().lock()), number_(number) {}

  FlightListener* listener_on(const Stream& stream) const {
    return stream.device.kind == DeviceKind::cuda && record_ ? record_->listener_ : nullptr;
  }

  void end(FlightState state) {
    if (!record_) return;
    FlightRecord& record = *record_;
    record_ = nullptr;
    auto& entry = record.entry(number_);
    if (entry[FlightRecord::kNumber].load(std::memory_order_relaxed) != number_) return;
    entry.set(FlightRecord::kEnded, ticks_now());
    entry.set(FlightRecord::kBytes, bytes_);
    entry.set(FlightRecord::kState, state);
    if (record.listener_) [[unlikely]]
      record.tell(number_);
  }

  FlightRecord* record_ = nullptr;
  /// Keeps the record alive; the operation may outlive its rank.
  std::shared_ptr<FlightRecord> kept_;
  uint64_t number_ = 0;
  int64_t bytes_ = 0;
};

/// Makes a record for a rank; null without the variable WEFT_FLIGHT. The process's records are
/// written to the folder that WEFT_FLIGHT names, each as `rank-<r>.json`, when the process receives
/// SIGUSR1 (unless the program handles that itself).
std::shared_ptr<FlightRecord> new_flight_record(int rank, int ranks, bool listens = true);

/// Writes the calling rank's record, if any, because its world failed; only the first reason is
/// written. Errors are ignored, so as not to hide the failure.
void write_flight_record(std::string_view reason) noexcept;

/// Writes all records of the process.
void write_flight_records(std::string_view reason) noexcept;

}  // namespace weft
