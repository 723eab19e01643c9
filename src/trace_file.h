// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// A stretch of time in nanoseconds.
struct TraceTimes {
  int64_t begin;
  int64_t end;
};

/// A lane for each, so that those of one lane do not overlap: 0 for the first, as few as can be.
std::vector<int> lanes_for(std::span<const TraceTimes> all);

/// Writes the events of one rank in the form that chrome://tracing and Perfetto read.
class TraceEvents {
 public:
  /// Times are written from `origin` on.
  TraceEvents(int rank, int64_t origin) : rank_(rank), origin_(origin) {}

  /// Beside the rank's number; "" leaves it out.
  void name_process(std::string_view label);
  void name_lane(int lane, std::string_view name);
  /// `arguments`: the members of a JSON object.
  void add(int lane, std::string_view category, std::string_view name, TraceTimes times,
           std::string_view arguments);
  /// Separated by commas, a line an event.
  const std::string& text() const { return text_; }

 private:
  void add_name(std::string_view what, int lane, std::string_view name);

  int rank_;
  int64_t origin_;
  std::string text_;
};

/// In quotes, as JSON has it.
std::string json_quoted(std::string_view text);

/// What stands before, between and after the events of ranks in a file.
inline constexpr std::string_view kTraceHead = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
inline constexpr std::string_view kTraceComma = ",\n";
/// `notes`: the members of a JSON object.
std::string trace_tail(std::string_view notes);

}  // namespace weft
