// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/buffers.h"
#include "fsdp/fsdp_state.h"
#include "fsdp/scheduler.h"
#include "weft/module.h"
#include "weft/stream.h"

namespace weft::fsdp {

/// Runs the param groups of one model; the outermost sharded module keeps it. The first step of a
/// kind is recorded. Later steps prefetch in the recorded order and are checked against it.
class FsdpContext final : public ModuleAttachment,
                          public std::enable_shared_from_this<FsdpContext>,
                          private Executor {
 public:
  /// `states` in the order of the modules, the outermost last. They use this context from then on.
  static std::shared_ptr<FsdpContext> make(FsdpStates states);
  /// std::invalid_argument "<what>: ..." unless the module is the outermost sharded one of a model.
  static std::shared_ptr<FsdpContext> of(const char* what, const Module& module);

  void pre_forward(ParamGroup& group);
  void post_forward(ParamGroup& group);
  /// A module's backward begins, or the gradients of its inputs are complete.
  void in_backward(StepEvent::Kind kind, ParamGroup& group);
  /// Unshards a group for a backward that is not that of its module, or for `grad`, which reduces
  /// no gradients.
  void gather_for_backward(ParamGroup& group);
  /// A contribution to the gradient of trainable parameter `i` follows, whether the backward of its
  /// module has begun or not.
  void pre_accumulate_grad(ParamGroup& group, size_t i);
  /// The last contribution of a backward, or of a nested one, has come.
  void post_accumulate_grad(ParamGroup& group, size_t i);

  /// Calls of FsdpModule.
  void user_event(StepEvent::Kind kind, ParamGroup& group);
  void set_is_last_backward(bool is_last) { is_last_backward_ = is_last; }
  void set_manual_finalization(bool enabled);
  /// `waits`: until all reductions have ended. Returns the number of the step, or 0 if nothing
  /// is left to wait for.
  uint64_t finalize_manually(bool waits);
  void wait_for_finalization(uint64_t step);
  void reset_iter_state();
  void set_post_optim_event(Event event) { post_optim_event_ = std::move(event); }
  void share_buffers(FsdpContext& first);

  /// Builds all groups, the first time.
  void lazy_init();
  /// Builds the group and allocates its slices, the first time.
  void materialize(ParamGroup& group, Device device);
  bool syncs() const { return syncs_; }
  void set_syncs(bool syncs) { syncs_ = syncs; }

  const ParamGroups& groups() const { return groups_; }
  ParamGroup& root() const { return *groups_.back(); }
  /// True for the group that began the present step.
  bool is_first(const ParamGroup& group) const { return &group == first_; }
  bool backward_has_begun() const { return backward_begun_; }
  /// False once a module around it was sharded.
  bool is_current() const { return states_.back()->find_context().get() == this; }
  /// The actions of such steps in the order of the last step; of the modules before the first step
  /// has ended and after a step in another order.
  Schedule schedule(const std::vector<StepKind>& steps) const;
  /// Bytes of all buffers.
  int64_t buffer_bytes() const { return pool_->bytes(); }
  /// Traffic between the last two syncs.
  const FullyShardBytes& traffic() const { return traffic_last_; }

 private:
  void check_schedule() const;
  FsdpContext() : scheduler_(groups_, *this) {}
  void unshard(ParamGroup& group, size_t level) override;
  void wait_for_unshard(ParamGroup& group) override;
  void compute(ParamGroup&) override {}
  void reshard(ParamGroup& group, size_t level) override { group.reshard(level, *pool_); }
  void allocate_grads(ParamGroup& group) override { group.gradients().allocate_buffer(*pool_); }
  void release_grads(ParamGroup& group) override;
  void close_bucket(ParamGroup& group, int bucket, size_t reductions) override {
    group.gradients().close_bucket(bucket, reductions);
  }
  void reduce_grads(ParamGroup& group, int bucket, size_t reduction) override;
  void wait_for_reduce(ParamGroup& group, int bucket, size_t reduction, bool last) override;

  void identify();
  void build(ParamGroup& group);
  void begin_step(bool training);
  void begin_unrecorded_step();
  void begin_backward();
  void end_step();
  void abandon();
  void note_changes(ParamGroup& group);
  void invalidate(ParamGroup& group);
  void handle(StepEvent::Kind kind, ParamGroup& group, int bucket = 0);
  void follow(const StepEvent& event);
  void use_states(FsdpStates states);
  void take_over_changes();
  void readopt();
  void end_backward();
  void end_lending();
  void finalize_backward();
  void finalize();
  void wait_for_host_copies();
  Stream stream(StreamRole role) const { return stream_for(pool_->device(), role); }
  Stream computing() const { return current_stream(pool_->device()); }
  void count(const std::string& axes, int64_t bytes, int64_t copied);

  FsdpStates states_;
  ParamGroups groups_;
  std::shared_ptr<BufferPool> pool_ = std::make_shared<BufferPool>();
  Scheduler scheduler_;
  /// Indexed by kind of step: without and with gradients.
  std::array<Recording, 2> recordings_;
  Recording unrecorded_;
  Recording* running_ = nullptr;
  /// The group that began the present step: the root, unless a part of the model is called alone.
  ParamGroup* first_ = nullptr;
  /// Forward records gradients (not Module::set_training).
  bool training_ = false;
  /// A CUDA graph contains steps, and changes the slices without notice.
  bool in_graph_ = false;
  bool syncs_ = true;
  /// A backward of this step has begun; until `finalize`.
  bool backward_begun_ = false;
  /// A backward of the tape is under way and has called a hook; until `after_backward`.
  bool in_backward_ = false;
  bool is_last_backward_ = true;
  /// The groups that a `grad` under way has unsharded.
  std::vector<ParamGroup*> lent_;
  bool finalizes_manually_ = false;
  /// Counts steps, for handles of their reductions.
  uint64_t step_ = 0;
  uint64_t reset_at_ = 0;
  Event post_optim_event_;
  /// The modules and parameters of the model, as they were last seen.
  uint64_t structure_ = 0;
  /// Bytes since the last sync, and between the last two.
  FullyShardBytes traffic_;
  FullyShardBytes traffic_last_;
};

}  // namespace weft::fsdp
