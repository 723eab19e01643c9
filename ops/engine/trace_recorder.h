// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ops/engine/route.h"
#include "src/base/ticks.h"
#include "src/comm/flight/record.h"
#include "src/device/cuda/runtime.h"
#include "src/device/kernel/ranges.h"
#include "weft/export.h"
#include "weft/stream.h"

namespace weft {

/// The kind of an interval of a stream.
enum class StreamWork : uint8_t {
  span,
  /// The compute stream waits.
  wait,
  collective,
};

/// An interval of one stream of a GPU, in nanoseconds of the host's steady clock.
struct StreamStretch {
  int device;
  /// As returned by cuda::role_of.
  int role;
  StreamWork work;
  std::string name;
  int64_t begin, end;
  /// Time at which the host queued its end, in ticks.
  int64_t queued;
};

/// Nanoseconds in which any of the intervals communicates, and the exposed part of them, in which
/// the compute stream waits or communicates itself.
struct CommunicationTime {
  int64_t all = 0;
  int64_t exposed = 0;
};
CommunicationTime communication_time(const std::vector<StreamStretch>& stretches);

/// The intervals of GPU streams that a trace keeps. Belongs to the rank's thread.
class StreamTimes {
 public:
  /// `anchor_serves`: nanoseconds after which a new anchor is made.
  explicit StreamTimes(int64_t anchor_serves = 5'000'000'000) : anchor_serves_(anchor_serves) {}

  /// A point in a stream.
  struct Mark {
    Stream stream = {};
    std::shared_ptr<cuda::StreamTime> time = {};
    /// Index among the anchors of the device.
    size_t anchor = 0;
  };

  /// Returns an empty mark on the CPU, and while a graph is recorded, which runs at other times.
  Mark mark(const Stream& stream);
  /// Adds the interval from a mark that is not empty until now; returns its number.
  size_t add(const Mark& begin, StreamWork work, std::string name);
  /// Changes the name of an interval once it is known.
  void rename(size_t number, std::string name) { kept_[number].name = std::move(name); }

  size_t size() const { return kept_.size(); }
  /// Returns the intervals in the order in which they were queued. Waits for the GPU.
  std::vector<StreamStretch> stretches() const;

 private:
  struct Kept {
    Mark begin, end;
    StreamWork work;
    std::string name;
    int64_t queued;
  };
  /// A point from which marks are timed: the times of a GPU are coarse over long distances. The
  /// host's time of the first one is known; each other one is timed from the one before.
  struct Anchor {
    std::shared_ptr<cuda::StreamTime> time;
    /// Nanoseconds of the steady clock when the host queued it.
    int64_t queued;
  };
  struct Anchors {
    std::vector<Anchor> all;
    /// The host's time of the first one.
    int64_t steady = 0;
  };
  size_t anchor_for(const Stream& stream);

  int64_t anchor_serves_;
  /// The key is the device.
  std::map<int, Anchors> anchors_;
  std::vector<Kept> kept_;
};

/// The events that a trace keeps of one rank. Times are ticks.
class TraceRecorder final : public FlightListener {
 public:
  /// An op call, or a span.
  struct Event {
    int64_t begin, end;
    const std::string* name;
    bool is_span;
    bool backward;
    /// Bytes that the op's moves received, or the number of a span.
    int64_t number;
    /// JSON members that describe it further; null if there are none.
    const std::string* detail = nullptr;
  };
  /// Bytes in use on the CPU and on GPUs.
  struct MemorySample {
    int64_t time, cpu, cuda;
  };

  explicit TraceRecorder(int64_t most) : most_(most) {}

  void add_op(const OpBody& op, int64_t begin, int64_t bytes, std::span<const Tensor> operands);
  /// A call of a module, and the memory in use behind it. It has a name if `name_modules` gave one.
  void add_module(const void* module, int64_t begin, std::span<const Tensor> inputs);
  bool has_name(const void* module) const { return of_module_.contains(module); }
  void name_module(const void* module, const std::string& path);
  void add_span(const char* name, int64_t begin, int64_t number);
  void add_stream_span(const char* name, const StreamTimes::Mark& begin, bool waits,
                       int64_t number);
  /// Also empty when the trace is full.
  StreamTimes::Mark mark(const Stream& stream);
  void ended(const FlightCopy& operation) override;
  void begins_on(uint64_t operation, const Stream& stream) override;
  void ends_on(uint64_t operation) override;

  const StreamTimes& streams() const { return streams_; }
  const std::vector<Event>& timed() const { return timed_; }
  const std::vector<FlightCopy>& collectives() const { return collectives_; }
  const std::vector<MemorySample>& memory() const { return memory_; }
  int64_t events() const {
    return static_cast<int64_t>(timed_.size() + collectives_.size() + streams_.size());
  }
  int64_t dropped() const { return dropped_; }

 private:
  bool has_room();
  const std::string* kept(const std::string& text) { return &*texts_.insert(text).first; }
  const std::string* described(const void* module, std::span<const Tensor> tensors);

  int64_t most_;
  int64_t dropped_ = 0;
  std::vector<Event> timed_;
  std::vector<FlightCopy> collectives_;
  std::vector<MemorySample> memory_;
  std::unordered_set<std::string> texts_;
  std::unordered_map<const void*, const std::string*> of_module_;
  StreamTimes streams_;
  /// Marks at which a GPU stream began collectives, until their ends are queued.
  std::unordered_map<uint64_t, StreamTimes::Mark> begun_;
  /// Collectives with a queued end that have not ended: their numbers in `streams_`.
  std::unordered_map<uint64_t, size_t> queued_;
};

/// Times one op call for the rank's trace, if there is one, and for CUDA tools (NVTX).
class TracedCall : NotCopied {
 public:
  TracedCall(TraceRecorder* recorder, const OpBody& op, std::span<const Tensor> operands)
      : recorder_(recorder), op_(op), operands_(operands) {
    cuda::begin_range(op.spec.name.c_str());
    if (recorder_) [[unlikely]]
      begin_ = ticks_now();
  }
  ~TracedCall() {
    cuda::end_range();
    if (recorder_) [[unlikely]]
      recorder_->add_op(op_, begin_, bytes_, operands_);
  }
  void moves(int64_t bytes) { bytes_ = bytes; }

 private:
  TraceRecorder* recorder_;
  const OpBody& op_;
  std::span<const Tensor> operands_;
  int64_t begin_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace weft
