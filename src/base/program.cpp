// SPDX-License-Identifier: Apache-2.0
#include "weft/program.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "weft/error.h"

namespace weft {

using Act = ProgramAct;

std::string_view name_of(ProgramAct act) {
  constexpr std::string_view kNames[] = {"acquire", "release", "view",     "move", "compute",
                                         "gather",  "reduce",  "exchange", "send", "receive",
                                         "read",    "write",   "wait"};
  return kNames[static_cast<size_t>(act)];
}

std::string words_of(const ProgramStep& step) {
  if (step.verb.empty()) return concat(name_of(step.act), " of slot ", step.slot);
  return step.object.empty() ? step.verb : concat(step.verb, ' ', step.object);
}

std::string bytes_in_words(int64_t bytes) {
  if (bytes < 1024) return concat(bytes, " B");
  double amount = static_cast<double>(bytes);
  size_t unit = 0;
  constexpr std::array<const char*, 5> units = {"B", "KiB", "MiB", "GiB", "TiB"};
  for (; amount >= 1024 && unit + 1 < units.size(); ++unit) amount /= 1024;
  return formatted("%.1f %s", amount, units[unit]);
}

static std::string seconds_in_words(double seconds) {
  if (seconds < 1e-3) return formatted("%.1f µs", seconds * 1e6);
  return seconds < 1 ? formatted("%.2f ms", seconds * 1e3) : formatted("%.2f s", seconds);
}

static bool comes_from_ranks(Act act) { return act >= Act::gather && act <= Act::receive; }

int Program::add_slot(ProgramSlot slot) {
  slots.push_back(std::move(slot));
  return static_cast<int>(slots.size()) - 1;
}

int Program::append(const Program& other) {
  const auto first = static_cast<int>(slots.size());
  int works = 0;
  for (const ProgramStep& step : steps) works = std::max(works, step.work + 1);
  slots.insert(slots.end(), other.slots.begin(), other.slots.end());
  for (ProgramStep step : other.steps) {
    if (step.slot >= 0) step.slot += first;
    if (step.work >= 0) step.work += works;
    for (int& slot : step.uses) slot += first;
    steps.push_back(std::move(step));
  }
  return first;
}

std::vector<std::pair<std::string, int64_t>> Program::received_by_axes() const {
  std::vector<std::pair<std::string, int64_t>> all;
  for (const ProgramStep& step : steps) {
    if (!comes_from_ranks(step.act) || step.bytes == 0) continue;
    auto found = std::ranges::find(all, step.axes, &std::pair<std::string, int64_t>::first);
    if (found == all.end()) found = all.insert(found, {step.axes, 0});
    found->second += step.bytes;
  }
  return all;
}

int64_t Program::received() const {
  int64_t bytes = 0;
  for (const auto& [axes, received] : received_by_axes()) bytes += received;
  return bytes;
}

int64_t Program::peak_bytes() const {
  int64_t held = 0;
  for (const ProgramSlot& slot : slots) held += slot.held_before ? slot.bytes : 0;
  int64_t most = held;
  for (const ProgramStep& step : steps) {
    if (step.slot < 0 || (step.act != Act::acquire && step.act != Act::release)) continue;
    const int64_t bytes = slots[static_cast<size_t>(step.slot)].bytes;
    most = std::max(most, held += step.act == Act::acquire ? bytes : -bytes);
  }
  return most;
}

int64_t Program::slot_bytes() const {
  int64_t bytes = 0;
  for (const ProgramSlot& slot : slots) bytes += slot.bytes;
  return bytes;
}

bool Program::is_timed() const {
  return std::ranges::none_of(
      steps, [](const ProgramStep& step) { return step.act == Act::compute && step.seconds == 0; });
}

double Program::seconds() const {
  double sum = 0;
  for (const ProgramStep& step : steps) sum += step.seconds;
  return sum;
}

static std::string line_of(const Program& program, const ProgramStep& step) {
  std::string line;
  if (!step.phase.empty()) line = formatted("%-10s", std::string(step.phase).c_str());
  line += words_of(step);
  if (!step.axes.empty()) line += concat(" over ", step.axes);
  if (!step.change.empty()) line += concat(": ", step.change);
  if (program.is_exact && step.slot >= 0) line += concat(", buffer ", step.slot);
  if (program.is_exact && step.bytes > 0) line += concat(", ", step.bytes, " bytes");
  if (!program.is_exact && comes_from_ranks(step.act)) {
    line += concat(", ", bytes_in_words(step.bytes));
  }
  if (step.seconds > 0) line += concat(", ", seconds_in_words(step.seconds));
  return line + '\n';
}

std::string text_of(const Program& program) {
  std::string text = program.title.empty() ? "" : program.title + '\n';
  if (program.steps.empty() && !program.is_exact) return text + "nothing to do\n";
  for (const ProgramStep& step : program.steps) {
    if (!step.verb.empty()) text += line_of(program, step);
  }
  if (!program.is_exact) {
    text += concat("received ", bytes_in_words(program.received()));
    if (program.is_timed()) text += concat(", predicted ", seconds_in_words(program.seconds()));
    return text + concat(", peak memory ", bytes_in_words(program.peak_bytes()), '\n');
  }
  text +=
      concat("buffers: ", program.slot_bytes(), " bytes; received: ", program.received(), " bytes");
  const auto by_axes = program.received_by_axes();
  for (const auto& [axes, bytes] : by_axes) {
    if (by_axes.size() > 1) text += concat(", over ", axes, ' ', bytes);
  }
  return text + '\n';
}

static std::atomic<bool> plans_are_strict{false};

void set_strict_plan(bool strict) { plans_are_strict.store(strict); }
bool is_strict_plan() { return plans_are_strict.load(std::memory_order_relaxed); }

}  // namespace weft
