// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/schedule.h"
#include "fsdp/unit.h"

namespace weft::fsdp {

/// Runs the units of one model by their schedule. The first step of a kind is recorded; later ones
/// follow it with prefetch and are checked against it.
class Runtime {
 public:
  /// `units` in the order of the modules, the outermost last.
  explicit Runtime(std::vector<std::shared_ptr<Unit>> units);

  void before_forward(Unit& unit);
  void after_forward(Unit& unit);
  void before_backward(Unit& unit);
  void gradients_complete(Unit& unit);

  BufferPool& pool() { return pool_; }
  const std::vector<std::shared_ptr<Unit>>& units() const { return units_; }
  Unit& root() const { return *units_.back(); }
  /// Of the last training step, or as expected from the modules' order.
  Schedule training_schedule() const;
  int64_t received() const { return received_last_; }

 private:
  void begin(bool training);
  void begin_unscheduled();
  void abandon();
  void event(Event::Kind kind, Unit& unit);
  void gather(Unit& unit);
  void scatter(Unit& unit);
  void finish_backward();
  void end();
  void expect_backward();

  std::vector<std::shared_ptr<Unit>> units_;
  BufferPool pool_;
  /// By kind of step: without and with gradients.
  std::array<Recording, 2> recordings_;
  Recording unscheduled_;
  Recording* running_ = nullptr;
  bool training_ = false;
  bool backward_begun_ = false;
  Unit* scattering_ = nullptr;
  int64_t received_ = 0;
  int64_t received_last_ = 0;
};

}  // namespace weft::fsdp
