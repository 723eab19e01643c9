// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/export.h"

namespace weft {

/// The effect of one step of a program.
enum class ProgramAct : uint8_t {
  /// The memory of a slot is allocated, or freed.
  acquire,
  release,
  /// Another name for memory: no byte moves.
  view,
  /// Copies within the rank.
  move,
  compute,
  /// Communicates over `axes`: each rank receives, or receives sums.
  gather,
  reduce,
  exchange,
  /// A message to or from the rank `peer`, which waits until the other end is reached.
  send,
  receive,
  /// Files.
  read,
  write,
  /// Ends the step that started with the same `work`.
  wait,
};
WEFT_API std::string_view name_of(ProgramAct act);

/// One step of a rank. Calls of ops, redistributions, steps of FSDP, split products and pipelines
/// are lists of these.
struct ProgramStep {
  ProgramAct act;
  /// The words of the step: "unshard" and "layer0". Without a verb the text has no line for it.
  std::string verb = {}, object = {};
  /// "P(sum) -> S(0)".
  std::string change = {};
  /// "forward", "backward" or nothing.
  std::string_view phase = {};
  /// The names of the axes over which it communicates, joined by "+".
  std::string axes = {};
  /// Bytes that this rank receives, reads or writes.
  int64_t bytes = 0;
  /// The predicted time; 0: not known.
  double seconds = 0;
  /// The slot that it acquires, releases, fills or reads, and further ones; -1: none.
  int slot = -1;
  std::vector<int> uses = {};
  /// The number of the work that it starts or, a wait, ends; -1: the step ends before the next one.
  int work = -1;
  /// The rank at the other end of a message.
  int peer = -1;
  /// Index of the queue on which the step runs; queues run side by side.
  int stream = 0;
};
/// "unshard layer0", or "release of buffer 0".
WEFT_API std::string words_of(const ProgramStep& step);

/// Memory that steps use. It may be acquired again after its release.
struct ProgramSlot {
  std::string name;
  int64_t bytes = 0;
  /// Held before the first step, or after the last.
  bool held_before = false, kept_after = false;
  /// The step that fills it, for findings; empty: its acquisition.
  std::string maker = {};
};

/// The scheduled work of one rank, in the order in which the rank runs it.
struct WEFT_API Program {
  /// The first line of the text; may be empty.
  std::string title = {};
  /// Numbers of bytes in full, and the slots of lines ("buffer 0").
  bool is_exact = false;
  int rank = 0;
  /// The names and sizes of the mesh's axes, by which ranks find each other.
  std::vector<std::pair<std::string, int>> mesh = {};
  std::vector<ProgramSlot> slots = {};
  std::vector<ProgramStep> steps = {};

  int add_slot(ProgramSlot slot);
  /// Adds the steps of `other` behind the own ones, and its slots. Returns the number that its
  /// first slot has here.
  int append(const Program& other);
  /// Received from other ranks, over all axes or over each, in the order of the steps.
  int64_t received() const;
  std::vector<std::pair<std::string, int64_t>> received_by_axes() const;
  /// The most bytes of slots that are held at once, and those of all slots.
  int64_t peak_bytes() const;
  int64_t slot_bytes() const;
  double seconds() const;
  /// The times of all computing steps are known.
  bool is_timed() const;
};

/// One line a step, and the sums.
WEFT_API std::string text_of(const Program& program);
/// The text of an SVG file: a row for each rank and stream, in which steps are boxes over time, and
/// the memory that the first rank holds below.
WEFT_API std::string svg_of(std::span<const Program> ranks);

/// A box of a drawing, and a row of them.
struct DrawnBox {
  std::string label;
  double begin = 0, end = 0;
  std::string_view colour;
};
struct DrawnRow {
  std::string name;
  std::vector<DrawnBox> boxes;
};
/// The text of an SVG file of rows over time, `scale` pixels a second.
WEFT_API std::string svg_of_rows(const std::string& title, const std::vector<DrawnRow>& rows,
                                 double scale);

/// What is wrong with a program.
enum class ProgramFault : uint8_t {
  /// A step uses a slot that is not held.
  not_acquired,
  used_after_release,
  acquired_twice,
  not_released,
  released_twice,
  /// A started step has no wait, or a wait no started step.
  not_waited,
  not_started,
  started_twice,
  /// A step uses a slot before the wait of the step that fills it.
  used_early,
  /// A slot is released while a started step uses it.
  released_early,
  /// Ranks communicate over the same axes in another order.
  order,
  deadlock,
  memory,
  /// A step names a slot, rank or axis that does not exist.
  misplaced,
};
WEFT_API std::string_view name_of(ProgramFault fault);

struct ProgramDefect {
  ProgramFault fault;
  int rank = 0;
  size_t step = 0;
  /// A sentence that names the rank.
  std::string text;
};

/// Finds the defects of the programs of ranks: those of each rank by itself, then, if there are
/// none, those of their order. The programs are those of all ranks of their mesh, or those of some,
/// of which the others run the same steps. `budget`: bytes of slots that a rank may hold; 0: any.
WEFT_API std::vector<ProgramDefect> defects_of(std::span<const Program> ranks, int64_t budget = 0);
/// std::invalid_argument "<what>: <fault>: step 3: <text>" for the first defect.
WEFT_API void check(const char* what, std::span<const Program> ranks, int64_t budget = 0);

/// Programs are checked before they run for the first time, or with `set_strict_plan(true)` before
/// each run. Holds for all ranks of the process.
WEFT_API void set_strict_plan(bool strict);
WEFT_API bool is_strict_plan();

/// The text with what XML reserves in its place: "&lt;".
WEFT_API std::string xml_text(std::string_view text);
/// "32.0 MiB".
WEFT_API std::string bytes_in_words(int64_t bytes);

}  // namespace weft
