// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/trace_recorder.h"

#include <algorithm>
#include <utility>

namespace weft {

using Times = std::vector<std::pair<int64_t, int64_t>>;

/// Returns the same intervals in order, without overlaps.
static Times united(Times times) {
  std::ranges::sort(times);
  Times all;
  for (const auto& [begin, end] : times) {
    if (!all.empty() && begin <= all.back().second) {
      all.back().second = std::max(all.back().second, end);
    } else {
      all.emplace_back(begin, end);
    }
  }
  return all;
}

static int64_t sum_of(const Times& times) {
  int64_t sum = 0;
  for (const auto& [begin, end] : times) sum += end - begin;
  return sum;
}

/// Returns the intersection of two lists of `united` intervals.
static Times common(const Times& a, const Times& b) {
  Times both;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const int64_t begin = std::max(a[i].first, b[j].first);
    const int64_t end = std::min(a[i].second, b[j].second);
    if (begin < end) both.emplace_back(begin, end);
    a[i].second < b[j].second ? ++i : ++j;
  }
  return both;
}

CommunicationTime communication_time(const std::vector<StreamStretch>& stretches) {
  Times communicates, stands;
  for (const StreamStretch& stretch : stretches) {
    const bool is_collective = stretch.work == StreamWork::collective;
    const bool by_compute = stretch.role == static_cast<int>(StreamRole::compute);
    if (is_collective) communicates.emplace_back(stretch.begin, stretch.end);
    if (stretch.work == StreamWork::wait || (is_collective && by_compute)) {
      stands.emplace_back(stretch.begin, stretch.end);
    }
  }
  communicates = united(std::move(communicates));
  return {sum_of(communicates), sum_of(common(communicates, united(std::move(stands))))};
}

/// The first anchor waits for its stream, which relates the GPU's clock to the host's.
size_t StreamTimes::anchor_for(const Stream& stream) {
  Anchors& anchors = anchors_[stream.device.index];
  const int64_t now = steady_nanoseconds();
  if (anchors.all.empty()) {
    const auto before = cuda::mark_time(stream);
    cuda::nanoseconds_between(*before, *before);
    anchors.all.push_back({cuda::mark_time(stream), now});
    cuda::nanoseconds_between(*before, *anchors.all[0].time);
    anchors.steady = steady_nanoseconds();
  } else if (now - anchors.all.back().queued > anchor_serves_) {
    anchors.all.push_back({cuda::mark_time(stream), now});
  }
  return anchors.all.size() - 1;
}

StreamTimes::Mark StreamTimes::mark(const Stream& stream) {
  if (stream.device.kind != DeviceKind::cuda || cuda::is_capturing()) return {};
  const size_t anchor = anchor_for(stream);
  return {stream, cuda::mark_time(stream), anchor};
}

size_t StreamTimes::add(const Mark& begin, StreamWork work, std::string name) {
  kept_.push_back({begin, mark(begin.stream), work, std::move(name), ticks_now()});
  return kept_.size() - 1;
}

std::vector<StreamStretch> StreamTimes::stretches() const {
  std::map<int, std::vector<int64_t>> steady;
  for (const auto& [device, anchors] : anchors_) {
    std::vector<int64_t>& times = steady[device];
    for (size_t i = 0; i < anchors.all.size(); ++i) {
      const int64_t later =
          i == 0 ? 0 : cuda::nanoseconds_between(*anchors.all[i - 1].time, *anchors.all[i].time);
      times.push_back(i == 0 ? anchors.steady : times.back() + later);
    }
  }
  std::vector<StreamStretch> all;
  for (const Kept& kept : kept_) {
    if (!kept.end.time) continue;  // it ended while a graph was recorded
    const Stream& stream = kept.begin.stream;
    const int device = stream.device.index;
    const Anchor& anchor = anchors_.at(device).all[kept.begin.anchor];
    const int64_t begin = steady.at(device)[kept.begin.anchor] +
                          cuda::nanoseconds_between(*anchor.time, *kept.begin.time);
    const int64_t took = cuda::nanoseconds_between(*kept.begin.time, *kept.end.time);
    all.push_back(
        {device, cuda::role_of(stream), kept.work, kept.name, begin, begin + took, kept.queued});
  }
  return all;
}

}  // namespace weft
