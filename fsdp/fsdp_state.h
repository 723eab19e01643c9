// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fsdp/param_group.h"
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
  /// Adds a parameter of module `member` to the group.
  void adopt(NamedParameter parameter, size_t member);
  /// Makes the modules unshard before forward, reshard after it, and unshard before their backward;
  /// the last gradient reshards (with frozen parameters, the gradients of the modules' inputs; the
  /// end of backward if no input needs one).
  void add_hooks(const std::vector<Module*>& modules);
  /// The modules that still exist.
  std::vector<Module*> modules() const;
  /// This state holds the parameters of its modules that are placed on `mesh` by `strategy`.
  bool is_for(const DeviceMesh& mesh, const Strategy& strategy) const {
    return group_->mesh() == mesh && group_->options().strategy.rows == strategy.rows;
  }
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
  struct Member {
    Module* module;
    std::weak_ptr<bool> life;
    bool has_run = false;
  };

  void materialize(Device device);
  Tensors pre_forward(size_t member, const Tensors& inputs);
  Tensors post_forward(size_t member, const Tensors& outputs);
  Tensors multiply(const Tensors& gradients);
  Tensors pre_backward(const Tensors& gradients);
  Tensors input_grads_complete(const Tensors& gradients);
  /// Returns the tensors with a node before each that requires a gradient. The node calls `hook`
  /// when backward has their gradients.
  using Hook = Tensors (FsdpState::*)(const Tensors& gradients);
  Tensors hooked(Tensors tensors, Hook hook);
  double divide_factor() const;

  std::shared_ptr<ParamGroup> group_;
  std::weak_ptr<FsdpContext> context_;
  std::vector<Member> members_;
  /// A forward has begun, but not all modules have run.
  bool open_ = false;
};

using FsdpStates = std::vector<std::shared_ptr<FsdpState>>;

/// Returns the states of the modules below `module`, in the modules' order, and names their groups
/// by their paths in it.
FsdpStates states_below(Module& module);

/// Returns the states below these modules, then their own.
FsdpStates states_from(const std::vector<Module*>& modules);

/// Gives `states`, all of the same modules, the parameters that no group below has, after checking
/// them all. With `again` the states had parameters before.
void adopt_parameters(const FsdpStates& states, const std::vector<Module*>& modules, bool again);

/// Distributes the parameters among the groups again. Returns the groups whose parameters changed.
std::vector<ParamGroup*> adopt_again(const FsdpStates& before, const FsdpStates& states);

/// A number for the modules and parameters below these modules.
uint64_t structure_of(const std::vector<Module*>& modules);

}  // namespace weft::fsdp
