// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// A time interval in nanoseconds.
struct TraceTimes {
  int64_t begin;
  int64_t end;
};

/// A collective or message of one rank. `waited`: nanoseconds until all ranks had called, or -1.
struct TraceCollective {
  std::string kind, communicator, words, state;
  uint64_t sequence;
  int64_t bytes;
  TraceTimes times;
  int64_t waited;
  bool is_finished = true;
};

/// Assigns a lane, from 0, to each interval: as few as possible, without overlaps in a lane.
std::vector<int> lanes_for(std::span<const TraceTimes> all);

/// Writes the events of one rank in the JSON format of chrome://tracing and Perfetto.
class TraceEvents {
 public:
  /// Times are relative to `origin`.
  TraceEvents(int rank, int64_t origin) : rank_(rank), origin_(origin) {}

  /// Sets the label shown next to the rank's number; "" omits it.
  void name_process(std::string_view label);
  void name_lane(int lane, std::string_view name) { add_name("thread_name", lane, name); }
  /// `arguments`: the members of a JSON object.
  void add(int lane, std::string_view category, std::string_view name, TraceTimes times,
           std::string_view arguments);
  /// A counter's values at a time. `values`: the members of a JSON object.
  void add_counter(std::string_view name, int64_t time, std::string_view values);
  /// Adds collectives, in as many lanes from `first_lane` on as overlap.
  void add_collectives(int first_lane, std::span<const TraceCollective> all);
  /// The events, separated by commas, one per line.
  const std::string& text() const { return text_; }

 private:
  /// `members`: those of the event's JSON object after the kind and the rank.
  void add_event(char kind, const std::string& members);
  void add_name(std::string_view what, int lane, std::string_view name);

  int rank_;
  int64_t origin_;
  std::string text_;
};

/// Returns `text` quoted as a JSON string.
std::string json_quoted(std::string_view text);

/// The text before, between and after the events of ranks in a file.
inline constexpr std::string_view kTraceHead = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
inline constexpr std::string_view kTraceComma = ",\n";
/// `notes`: the members of a JSON object.
std::string trace_tail(std::string_view notes);

}  // namespace weft
