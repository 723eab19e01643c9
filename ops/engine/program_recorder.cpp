// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "mesh/rows.h"
#include "mesh/steps.h"
#include "ops/engine/backward_run.h"
#include "ops/engine/call_watch.h"
#include "ops/engine/engine.h"
#include "src/device/memory.h"
#include "weft/picture.h"

namespace weft {

namespace {

/// Lists what calls of the calling rank do, while it exists.
class ProgramRecorder final : public CallWatch, public MemoryWatch, NotCopied {
 public:
  explicit ProgramRecorder(DeviceKind memory)
      : memory_(memory),
        outer_(std::exchange(Engine::current().watch, this)),
        outer_memory_(std::exchange(Heap::current().watch, this)) {}
  ~ProgramRecorder() override {
    Engine::current().watch = outer_;
    Heap::current().watch = outer_memory_;
  }

  Program program() && {
    for (const auto& [bytes, slots] : held_) {
      for (const int slot : slots) program_.slots[static_cast<size_t>(slot)].kept_after = true;
    }
    return std::move(program_);
  }

  void counted(DeviceKind kind, int64_t bytes) override {
    if (kind != memory_ || bytes == 0) return;
    std::vector<int>& held = held_[std::max(bytes, -bytes)];
    if (bytes > 0) {
      held.push_back(program_.add_slot({.name = "memory", .bytes = bytes}));
      return change(ProgramAct::acquire, held.back());
    }
    if (held.empty()) {
      held.push_back(program_.add_slot({.name = "memory", .bytes = -bytes, .held_before = true}));
    }
    change(ProgramAct::release, held.back());
    held.pop_back();
  }

  void computed(const OpBody& op, std::span<const Tensor> operands, const Attributes&,
                std::span<const Tensor> results) override {
    if (std::exchange(has_parts_, false)) return;
    const auto is_of_operand = [&](const Tensor& result) {
      return std::ranges::any_of(
          operands, [&](const Tensor& operand) { return operand.storage() == result.storage(); });
    };
    const bool is_view = !results.empty() && op.spec.view && is_of_operand(results[0]);
    if (!is_view) add(ProgramAct::compute, "compute", op.spec.name);
  }
  void differentiated(const OpNode&, std::span<const Tensor>, const Tensors&) override {}

  void planned(const std::string& what, const Plan& plan) override {
    if (plan.is_free()) return;
    const Program steps = program_of(plan);
    use_mesh(*plan.to->grid);
    for (ProgramStep step : steps.steps) {
      if (step.verb.empty()) continue;
      step.object = concat("for ", what);
      step.phase = phase();
      step.slot = -1, step.uses.clear();
      program_.steps.push_back(std::move(step));
    }
  }

  void fetched(const std::string& what, const Layout& from, int64_t bytes) override {
    use_mesh(*from.grid);
    ProgramStep& step = add(ProgramAct::exchange, "fetch", concat("for ", what));
    step.axes = from.grid->names(axes_cutting(from));
    step.bytes = bytes;
  }

  void part_started(const MovingPart& moving) override {
    use_mesh(*moving.layout.grid);
    const Moving made{works_++,
                      moving.scatters ? -1 : program_.add_slot({.name = in_words(moving.part)})};
    moving_.insert_or_assign(moving.key, made);
    if (made.slot >= 0) change(ProgramAct::acquire, made.slot);
    ProgramStep& step = add(moving.scatters ? ProgramAct::reduce : ProgramAct::gather,
                            moving.scatters ? "reduce-scatter" : "gather", in_words(moving.part));
    step.axes = moving.axis;
    step.bytes = moving.bytes;
    step.slot = made.slot;
    step.work = made.work;
    step.stream = static_cast<int>(StreamRole::copy);
  }

  void part_awaited(const void* key, int part) override {
    const auto found = moving_.find(key);
    if (found == moving_.end() || std::exchange(found->second.is_done, true)) return;
    add(ProgramAct::wait, "wait for", in_words(part)).work = found->second.work;
    if (found->second.slot >= 0) arrived_[part] = found->second.slot;
  }

  void part_computed(int part) override {
    has_parts_ = true;
    ProgramStep& step = add(ProgramAct::compute, "compute", in_words(part));
    const auto found = arrived_.find(part);
    if (found != arrived_.end()) step.uses = {found->second};
  }

  void part_ended(const void* key, int part) override {
    has_parts_ = false;
    const auto found = moving_.find(key);
    if (found == moving_.end()) return;
    if (found->second.slot >= 0) {
      change(ProgramAct::release, found->second.slot);
      arrived_.erase(part);
    }
    moving_.erase(found);
  }

 private:
  /// A part that moves: the number of its work, and the slot that it fills.
  struct Moving {
    int work, slot;
    bool is_done = false;
  };

  static std::string in_words(int part) { return concat("part ", part); }
  static std::string_view phase() { return is_in_backward() ? "backward" : "forward"; }

  void change(ProgramAct act, int slot) { program_.steps.push_back({.act = act, .slot = slot}); }
  ProgramStep& add(ProgramAct act, const char* verb, std::string object) {
    program_.steps.push_back(
        {.act = act, .verb = verb, .object = std::move(object), .phase = phase()});
    return program_.steps.back();
  }

  void use_mesh(const MeshGrid& grid) {
    if (!program_.mesh.empty()) return;
    program_.rank = grid.rank();
    for (const MeshAxis& axis : grid.axes()) program_.mesh.emplace_back(axis.name, axis.size);
  }

  const DeviceKind memory_;
  CallWatch* const outer_;
  MemoryWatch* const outer_memory_;
  Program program_;
  int works_ = 0;
  /// Slots that are held, by bytes.
  std::map<int64_t, std::vector<int>> held_;
  std::map<const void*, Moving> moving_;
  /// Parts that have arrived and are being multiplied.
  std::map<int, int> arrived_;
  /// The products of the present call have been listed part by part.
  bool has_parts_ = false;
};

}  // namespace

Program program_of(const std::function<void()>& work, DeviceKind memory) {
  ProgramRecorder recorder(memory);
  work();
  return std::move(recorder).program();
}

}  // namespace weft
