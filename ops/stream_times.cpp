// SPDX-License-Identifier: Apache-2.0
#include "ops/stream_times.h"

#include <utility>

#include "src/cuda/capture.h"
#include "src/cuda/stream_role.h"
#include "src/cuda/timing.h"
#include "src/ticks.h"

namespace weft {

/// Nanoseconds for which one anchor serves.
static constexpr int64_t kAnchorServes = 5'000'000'000;

bool StreamStretch::is_exposed() const {
  return work == StreamWork::wait ||
         (work == StreamWork::collective && role == static_cast<int>(StreamRole::compute));
}

static std::shared_ptr<void> time_on(const Stream& stream) {
  return {cuda::mark_time(stream), cuda::destroy_time};
}

/// The first one waits for the stream: the host's clock shows then what the GPU's does.
size_t StreamTimes::anchor_for(const Stream& stream) {
  std::vector<Anchor>& anchors = anchors_[stream.device.index];
  const int64_t now = steady_nanoseconds();
  if (anchors.empty()) {
    const std::shared_ptr<void> first = time_on(stream);
    cuda::nanoseconds_between(first.get(), first.get());
    const std::shared_ptr<void> time = time_on(stream);
    cuda::nanoseconds_between(first.get(), time.get());
    anchors.push_back({time, steady_nanoseconds(), now});
  } else if (now - anchors.back().queued > kAnchorServes) {
    const Anchor& last = anchors.back();
    const std::shared_ptr<void> time = time_on(stream);
    const int64_t later = cuda::nanoseconds_between(last.time.get(), time.get());
    anchors.push_back({time, last.steady + later, now});
  }
  return anchors.size() - 1;
}

StreamTimes::Mark StreamTimes::mark(const Stream& stream) {
  if (stream.device.kind != DeviceKind::cuda || cuda::is_capturing()) return {};
  const size_t anchor = anchor_for(stream);
  return {stream, time_on(stream), anchor};
}

void StreamTimes::add(const Mark& begin, StreamWork work, std::string name) {
  Mark end = mark(begin.stream);
  if (end.time) kept_.push_back({begin, std::move(end), work, std::move(name), ticks_now()});
}

int64_t StreamTimes::steady(const Mark& mark) const {
  const Anchor& anchor = anchors_.at(mark.stream.device.index)[mark.anchor];
  return anchor.steady + cuda::nanoseconds_between(anchor.time.get(), mark.time.get());
}

std::vector<StreamStretch> StreamTimes::stretches() const {
  std::vector<StreamStretch> all;
  for (const Kept& kept : kept_) {
    const int64_t begin = steady(kept.begin);
    const int64_t took = cuda::nanoseconds_between(kept.begin.time.get(), kept.end.time.get());
    const Stream& stream = kept.begin.stream;
    all.push_back({stream.device.index, cuda::role_of(stream), kept.work, kept.name, begin,
                   begin + took, kept.queued});
  }
  return all;
}

}  // namespace weft
