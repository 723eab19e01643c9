// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "weft/fsdp.h"
#include "weft/program.h"

namespace weft::fsdp {

class ParamGroup;
enum class Lifetime : uint8_t;
using ParamGroups = std::vector<std::shared_ptr<ParamGroup>>;

/// An event of a param group in a step, which a module hook or the tape reports.
struct StepEvent {
  enum class Kind : uint8_t {
    pre_forward,
    post_forward,
    pre_backward,
    /// All gradients of a bucket are complete.
    grads_complete,
    /// A bucket that was complete gets another contribution, because parameters are used in two
    /// recomputations, or in one and outside it. It is reduced again, and the sums are added.
    grads_continue,
    /// Groups with frozen parameters only: the gradients of the module's inputs are complete, so
    /// nothing reads the parameters any more. Reshards.
    input_grads_complete,
    /// Backward writes no more gradients; its reductions may still be under way.
    backward_complete,
    finalize,
    /// Calls of FsdpModule.
    user_unshard,
    user_wait,
    user_reshard
  } kind;
  ParamGroup* group;
  int bucket = 0;
  bool operator==(const StepEvent&) const = default;
  bool is_of_user() const { return kind >= Kind::user_unshard; }
};

/// Performs the actions of a Scheduler, or lists them. `level` and `reduction` index the group's
/// `levels()` and `reductions()`.
class Executor {
 public:
  virtual void unshard(ParamGroup& group, size_t level) = 0;
  virtual void wait_for_unshard(ParamGroup& group) = 0;
  virtual void compute(ParamGroup& group) = 0;
  virtual void reshard(ParamGroup& group, size_t level) = 0;
  virtual void allocate_grads(ParamGroup& group) = 0;
  virtual void release_grads(ParamGroup& group) = 0;
  /// Backward has written the bucket, of which this micro-step runs so many reductions.
  virtual void close_bucket(ParamGroup& group, int bucket, size_t reductions) = 0;
  virtual void reduce_grads(ParamGroup& group, int bucket, size_t reduction) = 0;
  /// `last`: no reduction of the bucket follows.
  virtual void wait_for_reduce(ParamGroup& group, int bucket, size_t reduction, bool last) = 0;

 protected:
  ~Executor() = default;
};

/// The state of a group's parameters: only slices can be used, gathered over the lower one of two
/// levels, being gathered, or usable. README.md draws the transitions.
enum class ShardedState : uint8_t { sharded, sharded_post_forward, unsharding, unsharded };

/// The state of a group's gradient buffer: none is held, backward writes it, or it keeps sums of
/// micro-steps, to which backward adds, until a reduction.
enum class GradState : uint8_t { none, accumulating, kept_for_sync };

/// Turns the events of a step into actions. The same code runs a step and predicts one.
class Scheduler {
 public:
  Scheduler(const ParamGroups& groups, Executor& executor);

  void begin_step(bool training);
  /// Releases what an unfinished step holds.
  void abandon();
  /// Releases the gradients' buffer, with sums of micro-steps in it.
  void drop_grads(ParamGroup& group);
  /// The groups have changed.
  void reset();
  void set_sync(bool sync) { sync_ = sync; }
  /// The group's slices have changed: the next use gathers them again.
  void slices_changed(ParamGroup& group);
  /// The group's memory was replaced.
  void forget(ParamGroup& group);
  void begin_backward();
  bool is_backward() const { return backward_; }
  /// `prefetch`: groups to unshard early, after `event.group`.
  void handle(const StepEvent& event, const std::vector<ParamGroup*>& prefetch);
  void allocate_grads(ParamGroup& group);

 private:
  /// `kept`: complete, but not reduced in this micro-step. `reduced`: the first reduction has read
  /// the buffer; with offloaded gradients the last one.
  enum class BucketState : uint8_t { incomplete, complete, kept, reduced };
  struct GroupState {
    ShardedState params = ShardedState::sharded;
    GradState grads = GradState::none;
    std::vector<BucketState> buckets;
  };
  /// A reduction of a bucket that is under way.
  struct Reducing {
    ParamGroup* group;
    int bucket;
    size_t reduction;
  };

  GroupState& state_of(const ParamGroup& group);
  void unshard(ParamGroup& group);
  void unshard_for_use(ParamGroup& group, const std::vector<ParamGroup*>& prefetch);
  void reshard(ParamGroup& group, Lifetime ended);
  void post_forward(ParamGroup& group);
  void reshard_after_backward(ParamGroup& group);
  void release_grads(ParamGroup& group);
  bool may_reduce(const ParamGroup& group, size_t reduction) const;
  void complete_bucket(ParamGroup& group, int bucket);
  void start_reductions(ParamGroup& group, int bucket);
  void continue_grads(ParamGroup& group, int bucket);
  void advance_reductions();
  void complete_buckets();
  void finalize();

  const ParamGroups& groups_;
  Executor& executor_;
  std::vector<GroupState> states_;
  std::deque<Reducing> reducing_;
  bool training_ = false;
  bool sync_ = true;
  bool backward_ = false;
};

/// The events of a step, and how many of them the present step has repeated.
struct Recording {
  std::vector<StepEvent> events;
  bool complete = false;
  size_t at = 0;
  /// The present step left the recorded order.
  bool diverged = false;

  bool is_followed() const { return complete && !diverged; }
  /// Groups to unshard early after the event at `index`: the next ones that the same direction
  /// unshards, as many as the event's group prefetches, or those of its prefetch list.
  std::vector<ParamGroup*> to_prefetch(size_t index) const;
};

/// The groups that the user wants to be unshard early after the event; empty without a list.
std::vector<ParamGroup*> prefetch_list(const StepEvent& event);
/// The sizes of all buffers that the groups ask a pool for.
std::vector<size_t> buffer_sizes(const ParamGroups& groups);

/// The actions of some steps, in order, and the bytes that they copy.
struct Schedule {
  Program program;
  int64_t copied = 0;
};

/// Adds bytes received over `axes`.
void add_received(FullyShardBytes& sum, const std::string& axes, int64_t bytes);

/// Returns the events of a step that runs the modules in their order.
Recording expected_step(const ParamGroups& groups, bool training);

/// Returns the actions of steps with these events, without running them.
Schedule compiled(const Recording& recording, const ParamGroups& groups,
                  const std::vector<StepKind>& steps);

}  // namespace weft::fsdp
