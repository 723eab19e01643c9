// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace weft::fsdp {

class Unit;

/// What happens to a unit in a step, as the modules' hooks see it.
struct Event {
  enum class Kind : uint8_t { forward, forward_done, backward, gradients_done, end } kind;
  Unit* unit;
  bool operator==(const Event&) const = default;
};

/// What the runtime does.
struct Action {
  enum class Kind : uint8_t { gather, wait, compute, free, scatter, wait_scatter } kind;
  Unit* unit;
  bool backward = false;
  /// The buffer that a gather or scatter takes or gives; -1 for none.
  int buffer = -1;
};

/// The actions of a step, worked out from its events before it runs.
struct Schedule {
  std::vector<Action> actions;
  /// Bytes of all buffers, and bytes received from other ranks.
  int64_t buffer_bytes = 0;
  int64_t received = 0;

  /// One line an action.
  std::string text() const;
};

/// Events of a step, and how far the present one has followed them.
struct Recording {
  std::vector<Event> events;
  bool complete = false;
  size_t at = 0;
  /// The present step left the recorded order.
  bool astray = false;

  /// Units to gather ahead after the event at `index` that needs a unit: the next `depth` needed
  /// ones in the same direction.
  std::vector<Unit*> ahead(size_t index, int depth) const;
};

/// The events of a training step in which modules run in their order.
std::vector<Event> expected_events(const std::vector<std::shared_ptr<Unit>>& units);

/// The actions that follow from events: exactly what the runtime does for them. `units` as there.
Schedule compiled(const Recording& recording, const std::vector<std::shared_ptr<Unit>>& units);

}  // namespace weft::fsdp
