// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/fsdp.h"

namespace weft::fsdp {

class Unit;

/// What happens to a unit in a step, as the modules' hooks see it.
struct StepEvent {
  enum class Kind : uint8_t {
    forward,
    forward_done,
    backward,
    gradients_done,
    gradients_again,
    backward_done,
    end
  } kind;
  Unit* unit;
  int bucket = 0;
  bool operator==(const StepEvent&) const = default;
};

/// Events of a step, and how far the present one has followed them.
struct Recording {
  std::vector<StepEvent> events;
  bool complete = false;
  size_t at = 0;
  /// The present step left the recorded order.
  bool astray = false;

  bool is_followed() const { return complete && !astray; }
  /// Units to gather ahead after the event at `index` that needs a unit: the next `depth` needed
  /// ones in the same direction.
  std::vector<Unit*> ahead(size_t index, int depth) const;
};

/// The actions of some steps one after the other, and what they take.
struct Schedule {
  std::vector<ScheduledAction> actions;
  /// Of all buffers.
  int64_t buffer_bytes = 0;
  int64_t received = 0;
  int64_t copied = 0;
  std::vector<AxisTraffic> by_axes;

  /// One line an action.
  std::string text() const;
};

/// Adds bytes received over `axes` to a list.
void add_traffic(std::vector<AxisTraffic>& by_axes, const std::string& axes, int64_t bytes);

using Units = std::vector<std::shared_ptr<Unit>>;

/// The events of a step in which modules run in their order.
Recording expected_step(const Units& units, bool training);

/// What the runtime does in steps with these events, without doing it. `units` as there.
Schedule compiled(const Recording& recording, const Units& units,
                  const std::vector<StepKind>& steps);

}  // namespace weft::fsdp
