// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/parameter.h"
#include "weft/tier.h"

namespace weft {

class ActivationStore;

/// Functions around a module's forward, which return the tensors to continue with.
struct ModuleHooks {
  std::function<Tensors(const Tensors& inputs)> before;
  /// `inputs` are those that forward received.
  std::function<Tensors(const Tensors& inputs, const Tensors& outputs)> after;
};
using HookList = std::vector<std::shared_ptr<const ModuleHooks>>;

/// Removes hooks that were added to a module. The handle may outlive the module.
class WEFT_API HookHandle {
 public:
  HookHandle() = default;
  HookHandle(const std::shared_ptr<HookList>& list, const std::shared_ptr<const ModuleHooks>& own)
      : list_(list), own_(own) {}
  /// Calls that begin later do not run the hooks. Has no effect the second time.
  void remove();

 private:
  std::weak_ptr<HookList> list_;
  std::weak_ptr<const ModuleHooks> own_;
};

/// A tensor of a module that is not trained, under a dotted name.
struct NamedBuffer {
  std::string name;
  Tensor value;
  /// True when it is saved with the module.
  bool persistent = true;
};

/// A part of a model: named parameters, named children, a forward. Calls run the hooks around it.
class WEFT_API Module : NotCopied {
 public:
  virtual ~Module() = default;

  Tensors operator()(const Tensors& inputs);
  /// The same for one input tensor and one output tensor.
  Tensor operator()(const Tensor& input);
  /// Calls the module with another forward, e.g. one that takes more arguments. With recompute,
  /// `forward` is kept until backward.
  Tensors call(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& forward);

  /// Every parameter once, in order of declaration, own parameters before those of children.
  std::vector<NamedParameter> named_parameters() const;
  std::vector<ParameterPtr> parameters() const;
  /// Returns this module ("") and all below it, parents first.
  std::vector<std::pair<std::string, Module*>> named_modules();
  /// Module at a dotted path; std::invalid_argument names the first part that does not exist.
  Module& module(const std::string& path);
  const std::vector<std::pair<std::string, ParameterPtr>>& own_parameters() const {
    return parameters_;
  }
  const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& children() const {
    return children_;
  }
  /// Every buffer of this module and those below it.
  std::vector<NamedBuffer> named_buffers() const;
  const std::vector<NamedBuffer>& own_buffers() const { return buffers_; }
  /// Adds a tensor that is not trained: it moves with the module and, if `persistent`, is saved
  /// with it. `fully_shard` and `parallelize` replicate it over their mesh.
  void register_buffer(std::string name, Tensor value, bool persistent = true);
  void set_buffer(const std::string& name, Tensor value);

  /// Allocates every declared parameter and sets its initial values, in order of declaration. The
  /// values are bitwise equal for any sharding. All ranks must call it. The first call of a module
  /// with inputs that have memory does so too, on their device.
  void materialize(Device device = cpu);
  /// Moves all parameters, their gradients and the buffers to `device`. std::invalid_argument for a
  /// module that is fully sharded or has no memory yet: `materialize` allocates it where it is
  /// needed.
  void to(Device device);
  /// Casts the floating ones to `dtype`. std::invalid_argument for a module that is fully sharded.
  void to(DType dtype);
  /// Forward saves only its inputs and runs again in backward, with the same random numbers. `kept`
  /// names ops whose results are saved too, and not computed again (`costly_ops`).
  /// std::invalid_argument for a name that no built-in op has.
  void set_recompute(bool recompute, std::vector<std::string> kept = {});
  /// The tier in which what a recomputation saves (the inputs that require a gradient, and kept
  /// results) rests between forward and backward, for this module and all below it. They are
  /// written while the next module computes, and read while backward computes the module after it:
  /// the results are the same bits. On the CPU, `Tier(true)`, the host, changes nothing.
  void offload_activations(const Tier& tier);
  /// Adds hooks. Hooks run in the order in which they were added, both before and after forward. A
  /// hook may add others; their `before` runs from the next call on.
  HookHandle add_hooks(ModuleHooks hooks);

  /// Replaces own parameter `name` by one of the same shape (a tie).
  void set_parameter(const std::string& name, ParameterPtr parameter);
  /// Replaces member `name` by another parameter (of any shape) or another child, for a forward
  /// that finds its members by name. Existing references keep the old member: call it before
  /// sharding, and before an optimizer is made.
  void replace(const std::string& name, ParameterPtr parameter);
  void replace(const std::string& name, std::shared_ptr<Module> child);
  /// Removes member `name`; returns false when it does not exist.
  bool remove(const std::string& name);
  /// Adds a child that forward does not call: hooks call it, e.g. those of an adapter.
  void adopt(std::string name, std::shared_ptr<Module> child);

  /// Sets the mode of this module and all below. While not training, `Dropout` returns its input.
  void set_training(bool training);
  bool is_training() const { return training_; }

 protected:
  virtual Tensors forward(const Tensors& inputs) = 0;

  ParameterPtr declare(std::string name, const Shape& shape, Parameter::Initializer initializer,
                       DType dtype = DType::f32);
  template <class M> std::shared_ptr<M> add(std::string name, std::shared_ptr<M> child) {
    adopt(std::move(name), child);
    return child;
  }
  /// std::invalid_argument when there is none of that name.
  const Tensor& buffer(const std::string& name) const;
  /// Returns the tensor that forward uses for own parameter `i`, in order of declaration.
  const Tensor& used(size_t i) const {
    if (i >= parameters_.size()) fail_used(i);
    return parameters_[i].second->tensor();
  }

 private:
  friend struct ModuleSharder;
  [[noreturn]] void fail_used(size_t i) const;
  void allocate_beside(const Tensors& inputs);
  void move_buffers(Device device);
  const NamedBuffer* find_buffer(const std::string& name) const;
  Tensors run_forward(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& forward);
  void check_new_name(const std::string& name) const;
  void is_known_as(const std::string& name);

  std::vector<std::pair<std::string, ParameterPtr>> parameters_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  std::vector<NamedBuffer> buffers_;
  std::shared_ptr<HookList> hooks_ = std::make_shared<HookList>();
  HookList enclosing_;
  std::vector<std::function<void(Device)>> materializers_;
  std::vector<std::shared_ptr<class ModuleAttachment>> attachments_;
  /// Expires with the module.
  std::shared_ptr<const bool> life_ = std::make_shared<bool>(true);
  bool recompute_ = false;
  std::vector<std::string> kept_ops_;
  Tier saved_tier_;
  /// Keeps the files of `saved_tier_` from one step to the next.
  std::shared_ptr<ActivationStore> store_;
  bool training_ = true;
  /// The name by which the first module that adopted this one knows it, and its hash.
  std::string known_as_;
  uint64_t number_ = 0;
  /// Set when a call has found all parameters allocated.
  bool allocated_ = false;
};

/// Runs `function` without recording it, and again with recording in backward: saves memory, costs
/// time. Both runs get the same random numbers; everything else that `function` uses must be
/// unchanged (a module that recomputes checks this). `kept`: names of ops whose results are saved
/// and not computed again. `offload`: where the inputs that ops computed, and kept results, rest
/// until backward. std::invalid_argument in backward when an input was changed in place.
WEFT_API Tensors recompute(const std::function<Tensors(const Tensors&)>& function,
                           const Tensors& inputs, const std::vector<std::string>& kept = {},
                           const Tier& offload = {});

/// Bytes that the calling rank has written to files and read from them so far for
/// `Module::offload_activations`. On `meta` those that it would have.
WEFT_API int64_t offloaded_activation_bytes();

/// Names of the ops that compute matrix products and attention, which take most of a forward's
/// time: to be kept by a recomputation. Tokens are dispatched to experts again, and float8 products
/// are computed again.
WEFT_API const std::vector<std::string>& costly_ops();

/// Compares the parameters that several ranks of a mesh hold alike (all of them under ddp, those of
/// norms under tensor parallelism), by hash: one all-reduce for each axis of a mesh, and one pass
/// over their memory (a copy to the host, from a GPU). std::invalid_argument, on all ranks of the
/// mesh, names the first parameter that differs and two ranks. Parameters without a sharding are
/// not compared. Collective: call it on all ranks, after initial values are made or loaded.
WEFT_API void check_replicas(const Module& module);

}  // namespace weft
