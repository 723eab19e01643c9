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

/// A module that was given to fully_shard: its param group and its hooks. All states of a model
/// share the context of its outermost sharded module.
class FsdpState final : public ModuleAttachment, public std::enable_shared_from_this<FsdpState> {
 public:
  FsdpState(Roles roles, const FullyShardOptions& options);

  const std::shared_ptr<ParamGroup>& group() const { return group_; }
  /// Adds a parameter to the group.
  void adopt(NamedParameter parameter);
  /// Makes `module` unshard before forward, reshard after it, and unshard before its backward; its
  /// last gradient reshards (with frozen parameters, the end of its backward).
  void add_hooks(Module& module);
  void set_context(const std::shared_ptr<FsdpContext>& context) { context_ = context; }
  /// std::invalid_argument if the outermost sharded module no longer exists.
  std::shared_ptr<FsdpContext> context() const;
  /// Null if the outermost sharded module no longer exists.
  std::shared_ptr<FsdpContext> find_context() const { return context_.lock(); }

 private:
  class Sink;

  void materialize(Device device);
  Tensors pre_forward(const Tensors& inputs);
  Tensors post_forward(const Tensors& outputs);
  Tensors pre_backward(const Tensors& gradients);
  Tensors post_backward(const Tensors& gradients);

  std::shared_ptr<ParamGroup> group_;
  std::weak_ptr<FsdpContext> context_;
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

  /// Builds all groups, the first time.
  void lazy_init();
  /// Builds the group and allocates its slices, the first time.
  void materialize(ParamGroup& group, Device device);
  bool syncs() const { return syncs_; }
  void set_syncs(bool syncs) { syncs_ = syncs; }

  const ParamGroups& groups() const { return groups_; }
  ParamGroup& root() const { return *groups_.back(); }
  bool is_current() const { return states_.back()->find_context().get() == this; }
  /// The actions of such steps in the order of the last step, or of the modules before the first.
  Schedule schedule(const std::vector<StepKind>& steps) const;
  /// Bytes of all buffers.
  int64_t buffer_bytes() const { return pool_.bytes(); }
  /// Traffic up to the last sync.
  const FullyShardBytes& traffic() const { return traffic_last_; }

 private:
  explicit FsdpContext(FsdpStates states);
  void unshard(ParamGroup& group, size_t level) override;
  void wait_for_unshard(ParamGroup& group) override;
  void compute(ParamGroup&) override {}
  void reshard(ParamGroup& group, size_t level) override { group.reshard(level, pool_); }
  void allocate_grads(ParamGroup& group) override { group.gradients().allocate_buffer(pool_); }
  void release_grads(ParamGroup& group) override;
  void finalize_grads(ParamGroup& group, int bucket) override {
    group.gradients().finalize(bucket, syncs_);
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
  void finalize_backward();
  void finalize();
  void wait_for_host_copies();
  Stream stream(StreamRole role) const { return stream_for(pool_.device(), role); }
  Stream computing() const { return current_stream(pool_.device()); }
  void count(const std::string& axes, int64_t bytes, int64_t copied);

  FsdpStates states_;
  ParamGroups groups_;
  BufferPool pool_;
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
  bool backward_begun_ = false;
  /// Since the last sync, and up to it.
  FullyShardBytes traffic_;
  FullyShardBytes traffic_last_;
};

}  // namespace weft::fsdp
