// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/parameter.h"

namespace weft {

/// What runs around a module's forward; either may change what passes.
struct ModuleHooks {
  std::function<Tensors(const Tensors& inputs)> before;
  /// `inputs` are what forward was given.
  std::function<Tensors(const Tensors& inputs, const Tensors& outputs)> after;
};
using HookList = std::vector<std::shared_ptr<const ModuleHooks>>;

/// Takes away hooks that were added to a module; it may outlive both.
class WEFT_API HookHandle {
 public:
  HookHandle() = default;
  HookHandle(const std::shared_ptr<HookList>& list, const std::shared_ptr<const ModuleHooks>& own)
      : list_(list), own_(own) {}
  /// They run in no call that begins from now on. Nothing when they are gone.
  void remove();

 private:
  std::weak_ptr<HookList> list_;
  std::weak_ptr<const ModuleHooks> own_;
};

/// Something that a floor above keeps with a module.
class WEFT_API ModuleAttachment {
 public:
  virtual ~ModuleAttachment() = default;
};

/// A part of a model: named parameters, named children, a forward. Calls run the hooks around it.
class WEFT_API Module {
 public:
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module() = default;

  Tensors operator()(const Tensors& inputs);
  /// For one tensor in and out.
  Tensor operator()(const Tensor& input);
  /// A call with this forward in the place of the module's own, such as one that knows more
  /// arguments; recompute keeps it until backward.
  Tensors call(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& forward);

  /// Every parameter once, in order of declaration, own ones before the children's.
  std::vector<NamedParameter> named_parameters() const;
  std::vector<ParameterPtr> parameters() const;
  /// This module ("") and all below it, parents first.
  std::vector<std::pair<std::string, Module*>> named_modules();
  /// The module at a dotted path; std::invalid_argument names the first part that is not there.
  Module& module(const std::string& path);
  const std::vector<std::pair<std::string, ParameterPtr>>& own_parameters() const {
    return parameters_;
  }
  const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& children() const {
    return children_;
  }

  /// Gives every declared parameter memory and its initial values, in order of declaration: equal
  /// bits for any sharding. Call it on all ranks alike.
  void materialize(Device device = cpu);
  /// Forward saves its inputs only and runs again in backward, with equal random numbers.
  void set_recompute(bool recompute) { recompute_ = recompute; }
  /// Those before forward run in the order in which they were added, and so do those after it. A
  /// hook may add others: those before forward run from the next call on.
  HookHandle add_hooks(ModuleHooks hooks);
  /// Runs them around all of `add_hooks`, whenever those are added: for what makes parameters ready
  /// and puts them away.
  void enclose(ModuleHooks hooks);
  /// Runs in `materialize` before parameters are: whoever shards them makes their memory.
  void add_materializer(std::function<void(Device)> make) {
    materializers_.push_back(std::move(make));
  }
  /// Keeps something as long as the module.
  void attach(std::shared_ptr<ModuleAttachment> attachment) {
    attachments_.push_back(std::move(attachment));
  }
  /// What is attached and is a T.
  template <class T>
  std::shared_ptr<T> attachment() const {
    for (const auto& attachment : attachments_) {
      if (auto found = std::dynamic_pointer_cast<T>(attachment)) return found;
    }
    return nullptr;
  }

  /// Lets own parameter `name` be `parameter` (a tie).
  void set_parameter(const std::string& name, ParameterPtr parameter);
  /// Puts another parameter, of whatever shape, or another child in the place of member `name`, for
  /// a forward that finds its members by name. Who holds the former one keeps it: call it before
  /// sharding, and before an optimizer is made.
  void replace(const std::string& name, ParameterPtr parameter);
  void replace(const std::string& name, std::shared_ptr<Module> child);
  /// Forgets member `name`; false when there is none.
  bool remove(const std::string& name);
  /// Adds a child that forward does not know: hooks call it, as those of an adapter.
  void adopt(std::string name, std::shared_ptr<Module> child) {
    add_child(std::move(name), std::move(child));
  }

  /// Of this module and all below it: while not training, `Dropout` passes everything.
  void set_training(bool training);
  bool is_training() const { return training_; }

 protected:
  virtual Tensors forward(const Tensors& inputs) = 0;

  ParameterPtr declare(std::string name, const Shape& shape, Parameter::Initializer initializer,
                       DType dtype = DType::f32);
  template <class M>
  std::shared_ptr<M> add(std::string name, std::shared_ptr<M> child) {
    add_child(std::move(name), child);
    return child;
  }
  /// What own parameter `i`, in order of declaration, computes with.
  const Tensor& used(size_t i) const {
    if (i >= parameters_.size()) fail_used(i);
    return parameters_[i].second->tensor();
  }

 private:
  [[noreturn]] void fail_used(size_t i) const;
  Tensors run_forward(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& forward);
  void check_new_name(const std::string& name) const;
  void add_child(std::string name, std::shared_ptr<Module> child);

  std::vector<std::pair<std::string, ParameterPtr>> parameters_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  std::shared_ptr<HookList> hooks_ = std::make_shared<HookList>();
  HookList enclosing_;
  std::vector<std::function<void(Device)>> materializers_;
  std::vector<std::shared_ptr<ModuleAttachment>> attachments_;
  /// As long as the module is there.
  std::shared_ptr<const bool> life_ = std::make_shared<bool>(true);
  bool recompute_ = false;
  bool training_ = true;
};

/// Runs `function` without recording it, and again, recorded, in backward: memory for time. Random
/// numbers are equal in both runs; what else `function` uses must be as it was (a module that
/// recomputes sees to it). std::invalid_argument in backward when an input was changed in place.
WEFT_API Tensors checkpoint(const std::function<Tensors(const Tensors&)>& function,
                            const Tensors& inputs);

}  // namespace weft
