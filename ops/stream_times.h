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

  /// No compute goes on meanwhile.
  bool is_exposed() const;
};

/// Which stretches of GPUs' time a trace keeps. Belongs to the rank's thread.
class StreamTimes {
 public:
  /// A point of a stream.
  struct Mark {
    Stream stream = {};
    std::shared_ptr<void> time = {};
    /// Of the anchors of the device.
    size_t anchor = 0;
  };

  /// Empty on the CPU, and while work is recorded, which is played at other times.
  Mark mark(const Stream& stream);
  /// From a mark that is not empty to here.
  void add(const Mark& begin, StreamWork work, std::string name);

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
  /// Points whose time on the host's clock is known. Stretches count from the last one before them:
  /// far from it a GPU's clock is coarse.
  struct Anchor {
    std::shared_ptr<void> time;
    int64_t steady;
    /// When the host queued it.
    int64_t queued;
  };
  size_t anchor_for(const Stream& stream);
  int64_t steady(const Mark& mark) const;

  std::map<int, std::vector<Anchor>> anchors_;
  std::vector<Kept> kept_;
};

}  // namespace weft
