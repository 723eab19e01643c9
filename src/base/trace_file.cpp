// SPDX-License-Identifier: Apache-2.0
#include "src/base/trace_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "weft/error.h"

namespace weft {

std::vector<int> lanes_for(std::span<const TraceTimes> all) {
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return all[a].begin < all[b].begin; });
  std::vector<int> lanes(all.size());
  std::vector<int64_t> ends;
  for (const size_t i : order) {
    const auto free =
        std::find_if(ends.begin(), ends.end(), [&](int64_t end) { return end <= all[i].begin; });
    lanes[i] = static_cast<int>(free - ends.begin());
    if (free == ends.end()) {
      ends.push_back(all[i].end);
    } else {
      *free = all[i].end;
    }
  }
  return lanes;
}

std::string json_quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Microseconds, exactly.
static std::string in_microseconds(int64_t nanoseconds) {
  return formatted("%s%lld.%03lld", nanoseconds < 0 ? "-" : "",
                   std::abs(static_cast<long long>(nanoseconds)) / 1000,
                   std::abs(static_cast<long long>(nanoseconds)) % 1000);
}

void TraceEvents::add_event(char kind, const std::string& members) {
  if (!text_.empty()) text_ += kTraceComma;
  text_ += concat("{\"ph\":\"", kind, "\",\"pid\":", rank_, ',', members, '}');
}

void TraceEvents::add_name(std::string_view what, int lane, std::string_view name) {
  add_event('M',
            concat("\"tid\":", lane, ",\"name\":\"", what, "\",\"args\":{\"",
                   what == "process_labels" ? "labels" : "name", "\":", json_quoted(name), '}'));
}

void TraceEvents::name_process(std::string_view label) {
  add_name("process_name", 0, concat("rank ", rank_));
  if (!label.empty()) add_name("process_labels", 0, label);
  add_event('M', concat("\"name\":\"process_sort_index\",\"args\":{\"sort_index\":", rank_, '}'));
}

void TraceEvents::add(int lane, std::string_view category, std::string_view name, TraceTimes times,
                      std::string_view arguments) {
  add_event('X', concat("\"tid\":", lane, ",\"ts\":", in_microseconds(times.begin - origin_),
                        ",\"dur\":", in_microseconds(times.end - times.begin),
                        ",\"cat\":", json_quoted(category), ",\"name\":", json_quoted(name),
                        ",\"args\":{", arguments, '}'));
}

void TraceEvents::add_counter(std::string_view name, int64_t time, std::string_view values) {
  add_event('C', concat("\"ts\":", in_microseconds(time - origin_), ",\"name\":", json_quoted(name),
                        ",\"args\":{", values, '}'));
}

void TraceEvents::add_collectives(int first_lane, std::span<const TraceCollective> all) {
  std::vector<TraceTimes> times;
  for (const TraceCollective& one : all) times.push_back(one.times);
  const std::vector<int> lanes = lanes_for(times);
  const int most = lanes.empty() ? -1 : *std::max_element(lanes.begin(), lanes.end());
  for (int lane = 0; lane <= most; ++lane) name_lane(first_lane + lane, "collectives");
  for (size_t i = 0; i < lanes.size(); ++i) {
    const TraceCollective& one = all[i];
    add(first_lane + lanes[i], one.is_finished ? "collective" : "collective,unfinished", one.kind,
        one.times,
        concat("\"bytes\":", one.bytes, ",\"communicator\":", json_quoted(one.communicator),
               ",\"sequence\":", one.sequence, ",\"call\":", json_quoted(one.words),
               ",\"state\":", json_quoted(one.state), ",\"waited_ns\":", one.waited));
  }
}

std::string trace_tail(std::string_view notes) {
  return concat("\n],\"otherData\":{", notes, "}}\n");
}

}  // namespace weft
