// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "weft/communicator.h"
#include "weft/export.h"
#include "weft/fsdp.h"
#include "weft/stream.h"

namespace weft {

namespace fsdp {
class FsdpContext;
class FsdpState;
}  // namespace fsdp

/// An unshard that was started. A forward of the module waits for it too.
class WEFT_API UnshardHandle {
 public:
  UnshardHandle() = default;
  explicit UnshardHandle(std::vector<std::shared_ptr<fsdp::FsdpState>> states)
      : states_(std::move(states)) {}
  /// Lets the parameters' `tensor()` use the gathered memory. Has no effect the second time.
  void wait();

 private:
  std::vector<std::shared_ptr<fsdp::FsdpState>> states_;
};

/// The reductions that `finalize_backward` started.
class WEFT_API GradientReductionHandle {
 public:
  GradientReductionHandle() = default;
  GradientReductionHandle(std::weak_ptr<fsdp::FsdpContext> context, uint64_t step)
      : context_(std::move(context)), step_(step) {}
  /// Ends the step: gradients can be read. std::runtime_error if `reset_iter_state` came before.
  void wait();

 private:
  std::weak_ptr<fsdp::FsdpContext> context_;
  uint64_t step_ = 0;
};

/// Replaces the all-gather of a module's slices, or the reduce-scatter of its gradients: starts the
/// collective over `ranks` that `pieces` describe, as the function of the same name of
/// Communicator.
using CustomCollective =
    std::function<Work(const Communicator& ranks, std::span<const Piece> pieces)>;

/// The methods of PyTorch's FSDPModule for a module that was given to `fully_shard`. What they set
/// holds from the next event of a step on, and schedules and predictions show it. `recurse`
/// includes the modules below too.
class WEFT_API FsdpModule {
 public:
  /// std::invalid_argument if the module was not given to fully_shard.
  explicit FsdpModule(Module& module);
  static bool is_sharded(const Module& module);
  /// "full_shard over dp=2", of a module that was given to fully_shard; else empty.
  static std::string strategy_of(const Module& module);
  /// True when a module below, or `module`, computes in `dtype` by its MixedPrecision.
  static bool computes_in(Module& module, DType dtype);

  /// Gathers the module's parameters, without those of modules below. The next forward finds them
  /// unsharded. With `async_op` returns before they are there.
  UnshardHandle unshard(bool async_op = false);
  /// Frees the unsharded parameters, also those that the strategy keeps.
  void reshard();
  /// False: backwards reduce nothing, and add unsharded gradients (see also NoSync, which
  /// still reduces what the strategy reduces in each micro-step). After micro-steps of NoSync,
  /// `grad()` shows only the unsharded ones, until the next backward that reduces adds them.
  void set_requires_gradient_sync(bool requires_gradient_sync, bool recurse = true);
  /// False: as in NoSync, the reductions of the last micro-step (`hsdp`: the all-reduce) wait.
  void set_requires_all_reduce(bool requires_all_reduce, bool recurse = true);
  /// Replaces the option, also for the outermost module, and in evaluation.
  void set_reshard_after_forward(bool reshard_after_forward, bool recurse = true);
  /// False: parameters stay unsharded after backward, until they change or `reshard`.
  void set_reshard_after_backward(bool reshard_after_backward, bool recurse = true);
  /// The modules that are unsharded early at this module's forward, or backward; with an empty list
  /// those that the recorded step uses next, as many as the option `prefetch` says.
  void set_modules_to_forward_prefetch(const std::vector<Module*>& modules);
  void set_modules_to_backward_prefetch(const std::vector<Module*>& modules);
  /// `hook` receives the module's gradients of this step when all reductions have ended, as a flat
  /// tensor of one device (one for each dtype and bucket, or for each parameter whose gradient
  /// rests on disk), and may change them, e.g. reduce them over further ranks. Then they are added
  /// to those of earlier steps. An empty one removes it.
  void set_all_reduce_hook(std::function<void(const Tensor&)> hook);
  /// The module's own gradients are divided by `factor` after their reduction. 1, the default,
  /// gives the gradients of the loss over the whole batch.
  void set_gradient_divide_factor(double factor);
  /// True holds always: weft's reductions are sums. std::invalid_argument for false.
  void set_force_sum_reduction_for_comms(bool enable);
  /// False: backward does not unshard; it throws where it reads a parameter.
  void set_unshard_in_backward(bool unshard_in_backward);
  /// False: the end of a backward leaves reductions under way, the step goes on with the next
  /// forward or backward, and gradients cannot be read until the last backward.
  void set_is_last_backward(bool is_last_backward);
  /// Empty functions restore weft's collectives.
  void set_custom_all_gather(CustomCollective collective);
  void set_custom_reduce_scatter(CustomCollective collective);
  /// True holds always: gradients that backward did not write are zeros, so that all ranks call the
  /// same collectives. std::invalid_argument for false.
  void set_reduce_scatter_unused_params(bool reduce_scatter_unused_params, bool recurse = true);
  /// True: resharding keeps the memory, at the same address, for the next unshard.
  void set_keep_unsharded_storage(bool keep, bool recurse = true);
  /// Set on the outermost module. True: no backward ends the step, `finalize_backward` does.
  void set_manual_backward_finalization(bool enabled);
  /// Completes reductions and reshards as set at this time. With `async_op` starts the reductions;
  /// gradients cannot be read before `wait`.
  GradientReductionHandle finalize_backward(bool async_op = false);
  /// Call it on the outermost module after an exception in forward or backward: ends what is under
  /// way, reshards, and clears all gradients.
  void reset_iter_state();
  /// The next unshard after an update waits for `event` in place of the current stream.
  void set_post_optim_event(Event event);

 private:
  using States = std::vector<std::shared_ptr<fsdp::FsdpState>>;
  States states(bool recurse) const;
  std::shared_ptr<fsdp::FsdpContext> context() const;
  fsdp::FsdpState& only_state(const char* what) const;
  void set_prefetch(const char* what, const std::vector<Module*>& modules, bool backward);

  Module& module_;
};

/// Lets sharded models use the same buffers, e.g. the stages of a pipeline. Each is the
/// outermost sharded module of its model. They must not be in the middle of a step.
WEFT_API void share_comm_ctx(const std::vector<Module*>& modules);

}  // namespace weft
