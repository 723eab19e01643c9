// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/engine/op_body.h"
#include "ops/engine/stream_times.h"
#include "src/base/ticks.h"
#include "src/comm/flight/record.h"
#include "src/device/kernel/ranges.h"
#include "weft/export.h"

namespace weft {

/// The events that a trace keeps of one rank. Times are ticks.
class TraceRecorder final : public FlightListener {
 public:
  /// An op call, or a span.
  struct Event {
    int64_t begin, end;
    /// Index into names().
    uint32_t name;
    bool is_span;
    bool backward;
    /// Bytes that the op's moves received, or the number of a span.
    int64_t number;
    /// Index into names() of the JSON members that describe it further; none if empty.
    uint32_t detail = 0;
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
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<MemorySample>& memory() const { return memory_; }
  int64_t events() const {
    return static_cast<int64_t>(timed_.size() + collectives_.size() + streams_.size());
  }
  int64_t dropped() const { return dropped_; }

 private:
  bool has_room();
  uint32_t number_of(const std::string& text);
  uint32_t described(const void* module, std::span<const Tensor> tensors);

  int64_t most_;
  int64_t dropped_ = 0;
  std::vector<Event> timed_;
  std::vector<FlightCopy> collectives_;
  std::vector<std::string> names_ = {""};
  std::vector<MemorySample> memory_;
  std::unordered_map<std::string, uint32_t> of_text_;
  std::unordered_map<const void*, uint32_t> of_module_;
  std::unordered_map<uint32_t, uint32_t> of_op_;
  std::unordered_map<const char*, uint32_t> of_span_;
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
