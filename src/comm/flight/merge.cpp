// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/base/trace_file.h"
#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/extend/flight.h"

namespace weft {

static constexpr int64_t kMostFlightRanks = 1 << 20;
/// Nanoseconds of 200 years: sums of two fit 64 bits.
static constexpr int64_t kLatestFlight = int64_t{200} * 366 * 86400 * 1'000'000'000 / 2;

namespace {

/// A member of a JSON object in a file, with its place for errors.
struct FlightField {
  const std::string& path;
  const nlohmann::json& object;
  std::string where = {};

  [[noreturn]] void refuse(const char* name, const char* expected) const {
    fail("trace: ", path, ": ", where, "\"", name, "\" is ",
         object.is_object() && object.contains(name) ? "not " : "missing; it must be ", expected);
  }
  const nlohmann::json& at(const char* name, const char* expected) const {
    if (!object.is_object() || !object.contains(name)) refuse(name, expected);
    return object[name];
  }
  int64_t number(const char* name, int64_t least, int64_t most) const {
    const auto& value = at(name, "a whole number");
    if (!value.is_number_integer()) refuse(name, "a whole number");
    const bool is_large = value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX;
    if (is_large || value.get<int64_t>() < least || value.get<int64_t>() > most) {
      fail("trace: ", path, ": ", where, "\"", name, "\" is ", value.dump(), "; from ", least,
           " to ", most);
    }
    return value.get<int64_t>();
  }
  /// -1 for null.
  int64_t time(const char* name) const {
    return at(name, "a time or null").is_null() ? -1 : number(name, 0, kLatestFlight);
  }
  std::string text(const char* name) const {
    const auto& value = at(name, "a text");
    if (!value.is_string()) refuse(name, "a text");
    return value.get<std::string>();
  }
};

/// One rank's file.
struct FlightFile {
  std::string path;
  int rank = 0, ranks = 0;
  std::string host, reason;
  int64_t forgotten = 0;
  std::vector<TraceCollective> operations;
};

}  // namespace

/// `to_wall`: wall time minus the clock's; `written`: when the record was, by that clock.
static TraceCollective operation_of(const FlightField& field, int64_t to_wall, int64_t written) {
  TraceCollective one;
  one.communicator = field.text("communicator");
  one.kind = field.text("kind");
  one.words = field.text("words");
  one.state = field.text("state");
  one.sequence = static_cast<uint64_t>(field.number("sequence", 0, INT64_MAX));
  one.bytes = field.number("bytes", 0, INT64_MAX);
  const int64_t posted = field.number("posted", 0, kLatestFlight);
  const int64_t started = field.time("started"), ended = field.time("ended");
  one.is_finished = ended >= 0;
  const int64_t end = std::max(posted, one.is_finished ? ended : written);
  one.times = {posted + to_wall, end + to_wall};
  one.waited = started < 0 ? -1 : started - posted;
  if (one.state != "done") one.kind += concat(" (", one.state, ')');
  return one;
}

static FlightFile flight_file(const std::string& path) {
  const nlohmann::json json = nlohmann::json::parse(read_json("trace", path));
  const FlightField top{path, json};
  if (top.number("weft_flight", 0, INT64_MAX) != 1) {
    fail("trace: ", path, ": the record is of version ", json["weft_flight"].dump(),
         "; this build reads version 1");
  }
  FlightFile file;
  file.path = path;
  file.ranks = static_cast<int>(top.number("ranks", 1, kMostFlightRanks));
  file.rank = static_cast<int>(top.number("rank", 0, file.ranks - 1));
  file.host = top.text("host");
  file.reason = top.text("reason");
  file.forgotten = top.number("forgotten", 0, INT64_MAX);
  const FlightField clock{path, top.at("clock", "an object"), "clock: "};
  const int64_t steady = clock.number("steady", 0, kLatestFlight);
  const int64_t to_wall = clock.number("wall", 0, kLatestFlight) - steady;
  const auto& operations = top.at("operations", "a list");
  if (!operations.is_array()) top.refuse("operations", "a list");
  for (size_t i = 0; i < operations.size(); ++i) {
    const FlightField field{path, operations[i], concat("operation ", i, ": ")};
    file.operations.push_back(operation_of(field, to_wall, steady));
  }
  return file;
}

static void check_ranks(const std::vector<FlightFile>& files) {
  for (size_t i = 1; i < files.size(); ++i) {
    const FlightFile &one = files[i - 1], &other = files[i];
    if (one.rank == other.rank) {
      fail("trace: ", one.path, " and ", other.path, " are both of rank ", one.rank,
           ", expected one file a rank");
    }
    if (one.ranks != other.ranks) {
      fail("trace: number of ranks is ", one.ranks, " in ", one.path, ", expected ", other.ranks,
           ", that of ", other.path);
    }
  }
}

static void write_merged(const std::vector<FlightFile>& files, int64_t origin,
                         const std::string& out) {
  OutputFile file("trace", out, OutputFile::Mode::replace);
  file.write(kTraceHead);
  std::string forgotten;
  for (const FlightFile& one : files) {
    if (&one != files.data()) file.write(kTraceComma);
    TraceEvents events(one.rank, origin);
    events.name_process(concat(one.host, "; ", one.reason));
    events.add_collectives(0, one.operations);
    file.write(events.text());
    forgotten += concat(forgotten.empty() ? "" : ",", "\"rank ", one.rank, "\":", one.forgotten);
  }
  file.write(trace_tail(concat("\"earlier_operations\":{", forgotten, "}")));
  file.close();
}

FlightSummary merge_flight_records(const std::vector<std::string>& files, const std::string& out) {
  if (files.empty()) fail("trace: number of flight records is 0, expected at least 1");
  std::vector<FlightFile> all;
  for (const std::string& path : files) all.push_back(flight_file(path));
  std::sort(all.begin(), all.end(),
            [](const FlightFile& a, const FlightFile& b) { return a.rank < b.rank; });
  check_ranks(all);
  FlightSummary summary;
  int64_t first = INT64_MAX, last = INT64_MIN;
  std::vector<bool> is_here(static_cast<size_t>(all[0].ranks));
  for (const FlightFile& file : all) {
    is_here[static_cast<size_t>(file.rank)] = true;
    for (const TraceCollective& one : file.operations) {
      ++summary.operations;
      summary.unfinished += !one.is_finished;
      first = std::min(first, one.times.begin);
      last = std::max(last, one.times.end);
    }
  }
  if (summary.operations > 0) summary.seconds = static_cast<double>(last - first) * 1e-9;
  for (int rank = 0; rank < all[0].ranks; ++rank) {
    if (!is_here[static_cast<size_t>(rank)]) summary.missing.push_back(rank);
  }
  write_merged(all, summary.operations > 0 ? first : 0, out);
  return summary;
}

}  // namespace weft
