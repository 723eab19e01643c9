// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace weft::fsdp {

class Unit;

/// What is done to a unit. `step` is a level of its parameters, or a reduction of its gradients.
struct Action {
  enum class Kind : uint8_t {
    gather,
    wait,
    compute,
    free,
    take_gradients,
    give_gradients,
    settle,
    reduce,
    wait_reduced
  } kind;
  Unit* unit;
  size_t step = 0;
  int bucket = 0;
  bool backward = false;
  /// wait_reduced: no reduction of this step follows.
  bool last = false;
};

/// Turns what happens in a step into actions, which somebody does or writes down: what runs is what
/// is predicted.
class Conductor {
 public:
  using Listener = std::function<void(const Action&)>;
  Conductor(const std::vector<std::shared_ptr<Unit>>& units, Listener listener);

  /// A step begins; what one before left on its way is given back.
  void begin(bool training);
  void set_sync(bool sync) { sync_ = sync; }
  /// The unit's slices have changed: what was gathered of them is no longer true.
  void update(Unit& unit);
  /// Nothing is held of it any more.
  void forget(Unit& unit);

  // Events of a step. `ahead`: units to gather early.
  void forward(Unit& unit, const std::vector<Unit*>& ahead);
  void forward_done(Unit& unit);
  void begin_backward();
  void backward(Unit& unit, const std::vector<Unit*>& ahead);
  void gradients_done(Unit& unit, int bucket);
  /// More comes to a bucket that was done, as to what is used within a second run and outside it,
  /// or in two: it is reduced again, and the sums are added up.
  void gradients_again(Unit& unit, int bucket);
  /// Its inputs' gradients are complete too.
  void backward_done(Unit& unit);
  void end();

  void take_gradients(Unit& unit);

 private:
  struct State {
    /// By level: gathered, or on the way.
    std::vector<bool> held;
    bool has_gradients = false;
    /// Sums wait in the gradients' memory for the sync.
    bool holds_sums = false;
    /// Buckets whose gradients are complete, and whose buffer has been read.
    std::vector<bool> done;
    int read = 0;
  };
  /// Reduction `step` of a bucket is under way.
  struct Flight {
    Unit* unit;
    int bucket;
    size_t step;
  };

  State& state(const Unit& unit);
  void hear(Action::Kind kind, Unit& unit, size_t step = 0, int bucket = 0, bool last = false);
  void gather(Unit& unit);
  void need(Unit& unit, const std::vector<Unit*>& ahead);
  void release(Unit& unit, bool step_too);
  void give_gradients(Unit& unit);
  bool may_reduce(const Unit& unit, size_t step) const;
  void advance();

  const std::vector<std::shared_ptr<Unit>>& units_;
  Listener listener_;
  std::vector<State> states_;
  std::deque<Flight> flights_;
  bool training_ = false;
  bool sync_ = true;
  bool backward_ = false;
};

}  // namespace weft::fsdp
