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

/// Seconds in which a GPU communicates, and the exposed part of them, in which it does not compute:
/// the compute stream waits, or runs the collective itself.
struct TraceOverlap {
  double communication = 0;
  double exposed = 0;
  /// Number of spans that were counted.
  int64_t spans = 0;
};

/// Records the times of ops, collectives and spans of the calling rank while it exists. At most one
/// per rank at a time; without one an op pays only a branch.
class WEFT_API TraceScope : NotCopied {
 public:
  /// Keeps the first `most_events` events and counts the others.
  explicit TraceScope(int64_t most_events = 1 << 17);
  ~TraceScope();

  /// Number of events that were recorded, and of those that did not fit.
  int64_t events() const;
  int64_t dropped() const;

  /// Communication of this rank's GPU in the work queued during the TraceSpans called `span`: the
  /// mean over all of them but the first, in which memory is allocated. Waits for the GPU.
  TraceOverlap overlap(const char* span) const;
  /// Adds a finite number to the file's "otherData", on rank 0.
  void note(const std::string& name, double value);

  /// Stops recording and writes the events of all ranks to one file on rank 0: a Chrome trace, for
  /// https://ui.perfetto.dev or chrome://tracing. Collective; rank 0 receives from one rank after
  /// the other. std::runtime_error on rank 0 when the file cannot be written.
  void write(const Communicator& world, const std::string& path);

 private:
  std::unique_ptr<TraceRecorder> recorder_;
  std::string notes_;
};

/// A named interval of the calling rank's time, e.g. "step 3", in the active trace and in Nsight
/// Systems (NVTX). For a GPU it also records the time of the GPU's current stream, from the point
/// that is queued at construction to the one at destruction. Only the address of `name` is kept:
/// use a literal.
class WEFT_API TraceSpan : NotCopied {
 public:
  /// States whether the stream computes or waits in the interval.
  enum class Time : uint8_t { works, waits };
  explicit TraceSpan(const char* name, int64_t number = -1, Device device = cpu,
                     Time time = Time::works);
  ~TraceSpan();

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
