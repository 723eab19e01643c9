// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "weft/module.h"

namespace weft {

/// Data that code which shards a module keeps with it.
class WEFT_API ModuleAttachment {
 public:
  virtual ~ModuleAttachment() = default;
};

/// The changes that `fully_shard`, `parallelize` and other code that shards modules make to modules
/// and their parameters.
struct WEFT_API ModuleSharder {
  /// Replaces the value by another layout of it, without marking it as initialized.
  static void lay_out(Parameter& parameter, Tensor value) { parameter.lay_out(std::move(value)); }
  /// Sets the tensor that forward uses instead of the value; an empty one restores the value.
  static void set_used(Parameter& parameter, Tensor used) {
    parameter.used_ = std::move(used);
    parameter.used_version_ = {};
  }
  /// Exchanges it with another one, for a scope; the version that it was made from stays.
  static void swap_used(Parameter& parameter, Tensor& used) { std::swap(parameter.used_, used); }
  static bool recomputes(const Module& module) { return module.recompute_; }
  static bool has_used(const Parameter& parameter) { return static_cast<bool>(parameter.used_); }
  /// States that the tensor in use was made from the value at that version of its storage.
  static void used_is_of(Parameter& parameter, uint64_t version) {
    parameter.used_version_ = version;
  }
  /// Sets what collectives of the parameter, and those of its model, are compared by between ranks.
  static void set_subject(Parameter& parameter, uint64_t own, uint64_t model) {
    parameter.subject_ = own;
    parameter.model_ = model;
  }
  /// Keeps what shards the parameter with others, e.g. an outer module, for later calls to find.
  static void set_sharder(Parameter& parameter, std::weak_ptr<void> sharder) {
    parameter.sharder_ = std::move(sharder);
  }
  static std::shared_ptr<void> sharder_of(const Parameter& parameter) {
    return parameter.sharder_.lock();
  }
  static uint64_t subject_of(const Parameter& parameter) { return parameter.subject_; }
  static uint64_t model_of(const Parameter& parameter) { return parameter.model_; }
  /// Sets a function that gives the value its final layout, if it does not have it yet.
  static void set_lazy_init(Parameter& parameter, std::function<void()> init) {
    parameter.lazy_init_ = std::move(init);
  }
  /// Runs that function, for code that makes tensors with the layout of the value.
  static void lazy_init(const Parameter& parameter) {
    if (parameter.lazy_init_) parameter.lazy_init_();
  }

  /// Allocates parameters that have no memory, as the first call of the module does.
  static void allocate(Module& module) { module.allocate_beside({}); }
  /// Lays out buffers that have no mesh yet as replicated over that of the module's parameters.
  static void replicate_buffers(Module& module, const DeviceMesh& mesh);
  /// Returns whether something shards the module: its copy would not be sharded.
  static bool is_sharded(const Module& module) {
    return !module.enclosing_.empty() || !module.materializers_.empty() ||
           !module.attachments_.empty();
  }

  /// Adds hooks that run outside those of `add_hooks`, whenever those are added: for code that
  /// unshards parameters before forward and reshards them afterwards.
  static void enclose(Module& module, ModuleHooks hooks) {
    module.enclosing_.push_back(std::make_shared<const ModuleHooks>(std::move(hooks)));
  }
  /// `make` runs in `materialize` before it allocates: code that shards parameters allocates them.
  static void add_materializer(Module& module, std::function<void(Device)> make) {
    module.materializers_.push_back(std::move(make));
  }
  /// Keeps `attachment` for the module's lifetime.
  static void attach(Module& module, std::shared_ptr<ModuleAttachment> attachment) {
    module.attachments_.push_back(std::move(attachment));
  }
  /// Returns the first attachment of type T, or null.
  template <class T> static std::shared_ptr<T> attachment(const Module& module) {
    const auto all = attachments<T>(module);
    return all.empty() ? nullptr : all[0];
  }
  /// Returns all attachments of type T, in the order of `attach`.
  template <class T> static std::vector<std::shared_ptr<T>> attachments(const Module& module) {
    std::vector<std::shared_ptr<T>> all;
    for (const auto& attachment : module.attachments_) {
      if (auto found = std::dynamic_pointer_cast<T>(attachment)) all.push_back(std::move(found));
    }
    return all;
  }
};

}  // namespace weft
