// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "weft/communicator.h"
#include "weft/export.h"

namespace weft {

class TraceRecorder;

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

  /// Ends the writing down and makes one file of what all ranks have, on rank 0: a Chrome trace, to
  /// be opened in https://ui.perfetto.dev or chrome://tracing. Collective; rank 0 takes the ranks
  /// one after the other. std::runtime_error there when the file cannot be written.
  void write(const Communicator& world, const std::string& path);

 private:
  std::unique_ptr<TraceRecorder> recorder_;
};

/// A stretch of the calling rank's time with a name, "step 3", in a trace under way, and in what
/// Nsight Systems records (NVTX). `name` is kept by its address: a literal.
class WEFT_API TraceSpan {
 public:
  explicit TraceSpan(const char* name, int64_t number = -1);
  ~TraceSpan();
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  TraceRecorder* recorder_;
  const char* name_;
  int64_t number_;
  int64_t begin_;
};

}  // namespace weft
