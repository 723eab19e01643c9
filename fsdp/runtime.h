// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "fsdp/buffers.h"
#include "fsdp/conductor.h"
#include "fsdp/schedule.h"
#include "fsdp/unit.h"

namespace weft::fsdp {

/// Runs the units of one model by their schedule. The first step of a kind is recorded; later ones
/// follow it with prefetch and are checked against it.
class Runtime {
 public:
  /// `units` in the order of the modules, the outermost last.
  explicit Runtime(Units units);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  void before_forward(Unit& unit);
  void after_forward(Unit& unit);
  void before_backward(Unit& unit);
  void after_backward(Unit& unit);
  /// A contribution to the gradient of a trainable parameter comes, whether its module's backward
  /// has begun or not; the last one of a backward, or of one within it, came.
  void need_gradient_memory(Unit& unit, size_t number);
  void gradient_complete(Unit& unit, size_t number);

  void build();
  /// The unit's memories are made anew.
  void forget(Unit& unit);
  void set_device(Device device) { pool_.set_device(device); }
  bool syncs() const { return syncs_; }
  void set_syncs(bool syncs) { syncs_ = syncs; }

  const Units& units() const { return units_; }
  Unit& root() const { return *units_.back(); }
  /// Of such steps in the order of the last one, or as expected from the modules' order.
  Schedule schedule(const std::vector<StepKind>& steps) const;
  /// Bytes of all buffers; received up to the last sync; copied meanwhile.
  int64_t buffer_bytes() const { return pool_.bytes(); }
  const FullyShardBytes& traffic() const { return traffic_last_; }

 private:
  void begin(bool training);
  void note_changes(Unit& unit);
  void renew(Unit& unit);
  void begin_unscheduled();
  void abandon();
  void event(StepEvent::Kind kind, Unit& unit, int bucket = 0);
  std::vector<Unit*> ahead(const Unit& unit) const;
  void hear(const Action& action);
  void hear_of_gradients(const Action& action);
  Stream stream(StreamRole role) const { return stream_for(pool_.device(), role); }
  Stream computing() const { return current_stream(pool_.device()); }
  void moved(const std::string& axes, int64_t bytes, int64_t copied);
  void finish_backward();
  void end();
  void await_host();
  void enter_backward();

  Units units_;
  BufferPool pool_;
  Conductor conductor_;
  /// By kind of step: without and with gradients.
  std::array<Recording, 2> recordings_;
  Recording unscheduled_;
  Recording* running_ = nullptr;
  /// Began the present step: the outermost one, unless a part of the model is called alone.
  Unit* first_ = nullptr;
  bool training_ = false;
  /// A graph holds steps of it, and changes the slices unseen.
  bool is_recorded_ = false;
  bool syncs_ = true;
  bool backward_begun_ = false;
  /// Since the last sync, and up to it.
  FullyShardBytes traffic_;
  FullyShardBytes traffic_last_;
};

/// Keeps the runtime with the outermost module.
struct RuntimeAttachment final : public ModuleAttachment {
  explicit RuntimeAttachment(Units units) : runtime(std::move(units)) {}
  Runtime runtime;
};

}  // namespace weft::fsdp
