// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weft/stream.h"

namespace weft {

/// The kind of an interval of a stream.
enum class StreamWork : uint8_t {
  span,
  /// The compute stream waits.
  wait,
  collective,
};

/// An interval of one stream of a GPU, in nanoseconds of the host's steady clock.
struct StreamStretch {
  int device;
  /// As returned by cuda::role_of.
  int role;
  StreamWork work;
  std::string name;
  int64_t begin, end;
  /// Time at which the host queued its end, in ticks.
  int64_t queued;
};

/// Nanoseconds in which any of the intervals communicates, and the exposed part of them, in which
/// the compute stream waits or communicates itself.
struct CommunicationTime {
  int64_t all = 0;
  int64_t exposed = 0;
};
CommunicationTime communication_time(const std::vector<StreamStretch>& stretches);

/// The intervals of GPU streams that a trace keeps. Belongs to the rank's thread.
class StreamTimes {
 public:
  /// `anchor_serves`: nanoseconds after which a new anchor is made.
  explicit StreamTimes(int64_t anchor_serves = 5'000'000'000) : anchor_serves_(anchor_serves) {}

  /// A point in a stream.
  struct Mark {
    Stream stream = {};
    std::shared_ptr<void> time = {};
    /// Index among the anchors of the device.
    size_t anchor = 0;
  };

  /// Returns an empty mark on the CPU, and while a graph is recorded, which runs at other times.
  Mark mark(const Stream& stream);
  /// Adds the interval from a mark that is not empty until now; returns its number.
  size_t add(const Mark& begin, StreamWork work, std::string name);
  /// Changes the name of an interval once it is known.
  void rename(size_t number, std::string name) { kept_[number].name = std::move(name); }

  size_t size() const { return kept_.size(); }
  /// Returns the intervals in the order in which they were queued. Waits for the GPU.
  std::vector<StreamStretch> stretches() const;

 private:
  struct Kept {
    Mark begin, end;
    StreamWork work;
    std::string name;
    int64_t queued;
  };
  /// A point from which marks are timed: the times of a GPU are coarse over long distances. The
  /// host's time of the first one is known; each other one is timed from the one before.
  struct Anchor {
    std::shared_ptr<void> time;
    /// Nanoseconds of the steady clock when the host queued it.
    int64_t queued;
  };
  struct Anchors {
    std::vector<Anchor> all;
    /// The host's time of the first one.
    int64_t steady = 0;
  };
  size_t anchor_for(const Stream& stream);

  int64_t anchor_serves_;
  /// By device.
  std::map<int, Anchors> anchors_;
  std::vector<Kept> kept_;
};

}  // namespace weft
