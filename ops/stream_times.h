// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weft/stream.h"

namespace weft {

/// What a stretch of a stream's time is.
enum class StreamWork : uint8_t {
  span,
  /// Compute stands still.
  wait,
  collective,
};

/// A stretch of the time of one stream of a GPU, in nanoseconds of the host's steady clock.
struct StreamStretch {
  int device;
  /// cuda::role_of.
  int role;
  StreamWork work;
  std::string name;
  int64_t begin, end;
  /// When the host queued its end, in ticks.
  int64_t queued;
};

/// Nanoseconds in which one of the stretches communicates, and of these those in which compute
/// waits, or does so itself.
struct CommunicationTime {
  int64_t all = 0;
  int64_t exposed = 0;
};
CommunicationTime communication_time(const std::vector<StreamStretch>& stretches);

/// Which stretches of GPUs' time a trace keeps. Belongs to the rank's thread.
class StreamTimes {
 public:
  /// `anchor_serves`: nanoseconds after which times are counted from a new point.
  explicit StreamTimes(int64_t anchor_serves = 5'000'000'000) : anchor_serves_(anchor_serves) {}

  /// A point of a stream.
  struct Mark {
    Stream stream = {};
    std::shared_ptr<void> time = {};
    /// Of the anchors of the device.
    size_t anchor = 0;
  };

  /// Empty on the CPU, and while work is recorded, which is played at other times.
  Mark mark(const Stream& stream);
  /// From a mark that is not empty to here; its number.
  size_t add(const Mark& begin, StreamWork work, std::string name);
  /// What it turns out to be.
  void rename(size_t number, std::string name) { kept_[number].name = std::move(name); }

  size_t size() const { return kept_.size(); }
  /// In the order in which they were queued. Waits for the GPU.
  std::vector<StreamStretch> stretches() const;

 private:
  struct Kept {
    Mark begin, end;
    StreamWork work;
    std::string name;
    int64_t queued;
  };
  /// Points from which marks count: far from them a GPU's clock is coarse. The first one's time on
  /// the host's clock is known, each other one counts from the one before.
  struct Anchor {
    std::shared_ptr<void> time;
    /// Nanoseconds of the steady clock, when the host queued it.
    int64_t queued;
  };
  struct Anchors {
    std::vector<Anchor> all;
    /// The first one's time.
    int64_t steady = 0;
  };
  size_t anchor_for(const Stream& stream);

  int64_t anchor_serves_;
  /// By device.
  std::map<int, Anchors> anchors_;
  std::vector<Kept> kept_;
};

}  // namespace weft
