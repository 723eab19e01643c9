// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "fsdp/buffers.h"
#include "fsdp/param_group.h"
#include "fsdp/scheduler.h"
#include "weft/extend/module_sharder.h"
#include "weft/module.h"

namespace weft::fsdp {

class FsdpContext;

/// A module, or several as one group, that was given to fully_shard: its param group and its hooks.
/// Parameters over another mesh have a further state. All states of a model share the context of
/// its outermost sharded module.
class FsdpState final : public ModuleAttachment, public std::enable_shared_from_this<FsdpState> {
 public:
  FsdpState(Roles roles, const FullyShardOptions& options);

  const std::shared_ptr<ParamGroup>& group() const { return group_; }
  /// Adds a parameter of module `unit` to the group.
  void adopt(NamedParameter parameter, size_t unit);
  /// Makes the modules unshard before forward, reshard after it, and unshard before their backward;
  /// the last gradient reshards (with frozen parameters, the end of backward).
  void add_hooks(const std::vector<Module*>& modules);
  /// The modules that still exist.
  std::vector<Module*> modules() const;
  /// This state holds the parameters of its modules whose mesh is `mesh`, or all that name no mesh.
  void set_mesh(DeviceMesh mesh) { mesh_ = std::move(mesh); }
  const DeviceMesh& mesh() const { return mesh_; }
  /// Ends the forward of several modules of which not all have run.
  void close_forward();
  /// The same after a forward that threw.
  void forget_forward() { open_ = false; }
  void set_context(const std::shared_ptr<FsdpContext>& context) { context_ = context; }
  /// std::invalid_argument if the outermost sharded module no longer exists.
  std::shared_ptr<FsdpContext> context() const;
  /// Null if the outermost sharded module no longer exists.
  std::shared_ptr<FsdpContext> find_context() const { return context_.lock(); }

 private:
  class Sink;

  /// A module of the group. `life` ends with it.
  struct Unit {
    Module* module;
    std::weak_ptr<bool> life;
    bool has_run = false;
  };

  void materialize(Device device);
  Tensors pre_forward(size_t unit, const Tensors& inputs);
  Tensors post_forward(size_t unit, const Tensors& outputs);
  Tensors pre_backward(const Tensors& gradients);
  Tensors post_backward(const Tensors& gradients);

  std::shared_ptr<ParamGroup> group_;
  std::weak_ptr<FsdpContext> context_;
  std::vector<Unit> units_;
  DeviceMesh mesh_;
  /// A forward has begun, but not all modules have run.
  bool open_ = false;
};

using FsdpStates = std::vector<std::shared_ptr<FsdpState>>;

/// Runs the param groups of one model; the outermost sharded module keeps it. The first step of a
/// kind is recorded. Later steps prefetch in the recorded order and are checked against it.
class FsdpContext final : public ModuleAttachment,
                          public std::enable_shared_from_this<FsdpContext>,
                          private Executor {
 public:
  /// `states` in the order of the modules, the outermost last. They use this context from then on.
  static std::shared_ptr<FsdpContext> make(FsdpStates states);

  void pre_forward(ParamGroup& group);
  void post_forward(ParamGroup& group);
  void pre_backward(ParamGroup& group);
  void post_backward(ParamGroup& group);
  /// A contribution to the gradient of trainable parameter `i` follows, whether the backward of its
  /// module has begun or not.
  void pre_accumulate_grad(ParamGroup& group, size_t i);
  /// The last contribution of a backward, or of a nested one, has come.
  void post_accumulate_grad(ParamGroup& group, size_t i);

  /// Calls of FsdpModule.
  void user_unshard(ParamGroup& group);
  void user_wait(ParamGroup& group);
  void user_reshard(ParamGroup& group);
  void set_is_last_backward(bool is_last) { is_last_backward_ = is_last; }
  void set_manual_finalization(bool enabled);
  /// `waits`: until all reductions have ended. Returns the number of the step.
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
  bool is_in_backward() const { return backward_begun_; }
  bool is_current() const { return states_.back()->find_context().get() == this; }
  /// The actions of such steps in the order of the last step, or of the modules before the first.
  Schedule schedule(const std::vector<StepKind>& steps) const;
  /// Bytes of all buffers.
  int64_t buffer_bytes() const { return pool_->bytes(); }
  /// Traffic up to the last sync.
  const FullyShardBytes& traffic() const { return traffic_last_; }

 private:
  explicit FsdpContext(FsdpStates states);
  void unshard(ParamGroup& group, size_t level) override;
  void wait_for_unshard(ParamGroup& group) override;
  void compute(ParamGroup&) override {}
  void reshard(ParamGroup& group, size_t level) override { group.reshard(level, *pool_); }
  void allocate_grads(ParamGroup& group) override { group.gradients().allocate_buffer(*pool_); }
  void release_grads(ParamGroup& group) override;
  void finalize_grads(ParamGroup& group, int bucket, size_t reductions) override {
    group.gradients().finalize(bucket, reductions);
  }
  void reduce_grads(ParamGroup& group, int bucket, size_t step) override;
  void wait_for_reduce(ParamGroup& group, int bucket, size_t step, bool last) override;

  void build(ParamGroup& group);
  void begin_step(bool training);
  void begin_unrecorded_step();
  void begin_backward();
  void abandon();
  void note_changes(ParamGroup& group);
  void invalidate(ParamGroup& group);
  void handle(StepEvent::Kind kind, ParamGroup& group, int bucket = 0);
  void follow(const StepEvent& event);
  bool syncs_all() const;
  void use_states(FsdpStates states);
  void take_over_changes();
  void readopt();
  void end_backward();
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
  /// By kind of step: without and with gradients.
  std::array<Recording, 2> recordings_;
  Recording unrecorded_;
  Recording* running_ = nullptr;
  /// The group that began the present step: the root, unless a part of the model is called alone.
  ParamGroup* first_ = nullptr;
  bool training_ = false;
  /// A CUDA graph contains steps, and changes the slices without notice.
  bool in_graph_ = false;
  bool syncs_ = true;
  /// In this step; and the outermost backward under way has called a hook.
  bool backward_begun_ = false;
  bool in_backward_ = false;
  bool is_last_backward_ = true;
  bool finalizes_manually_ = false;
  /// Counts steps, for handles of their reductions.
  uint64_t step_ = 0;
  uint64_t reset_at_ = 0;
  Event post_optim_event_;
  /// The modules and parameters of the model, as they were last seen.
  uint64_t structure_ = 0;
  /// Since the last sync, and up to it.
  FullyShardBytes traffic_;
  FullyShardBytes traffic_last_;
};

}  // namespace weft::fsdp
