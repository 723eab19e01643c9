// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "weft/communicator.h"
#include "weft/device.h"
#include "weft/export.h"

namespace weft {

class TraceRecorder;

/// Seconds in which a GPU communicates, and of them those in which it does not compute: it waits,
/// or the communication is among what it computes.
struct TraceOverlap {
  double communication = 0;
  double exposed = 0;
  /// How many spans were counted.
  int64_t spans = 0;
};

/// Writes down what ops, collectives and spans of the calling rank take while it lives. One at a
/// time for a rank; without one an op pays a branch.
class WEFT_API TraceScope {
 public:
  /// Keeps the first `most_events`, and counts the others.
  explicit TraceScope(int64_t most_events = 1 << 17);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  /// What was written down, and what found no room.
  int64_t events() const;
  int64_t dropped() const;

  /// Of this rank's GPU, in what was queued during its TraceSpans of that name, the mean over all
  /// but the first (in which memory is made). Waits for the GPU.
  TraceOverlap overlap(const char* span) const;
  /// Said of the whole in the file (a member of "otherData") by rank 0: a finite number.
  void note(const std::string& name, double value);

  /// Ends the writing down and makes one file of what all ranks have, on rank 0: a Chrome trace, to
  /// be opened in https://ui.perfetto.dev or chrome://tracing. Collective; rank 0 takes the ranks
  /// one after the other. std::runtime_error there when the file cannot be written.
  void write(const Communicator& world, const std::string& path);

 private:
  std::unique_ptr<TraceRecorder> recorder_;
  std::string notes_;
};

/// A stretch of the calling rank's time with a name, "step 3", in a trace under way, and in what
/// Nsight Systems records (NVTX). Of a GPU that is named, also the time that its current stream
/// takes from where it is at the beginning to where it is at the end, when the GPU comes there.
/// `name` is kept by its address: a literal.
class WEFT_API TraceSpan {
 public:
  /// What a GPU's stream does in it.
  enum class Time : uint8_t { works, waits };
  explicit TraceSpan(const char* name, int64_t number = -1, Device device = cpu,
                     Time time = Time::works);
  ~TraceSpan();
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  TraceRecorder* recorder_;
  const char* name_;
  int64_t number_;
  int64_t begin_;
  Time time_;
  struct OnStream;
  std::unique_ptr<OnStream> on_stream_;
};

}  // namespace weft
