// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <vector>

#include "nn/activation_store.h"
#include "nn/recompute.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/export.h"
#include "weft/extend/kept_results.h"
#include "weft/module.h"
#include "weft/storage.h"

namespace weft {

namespace {

/// The state of a module and all below it that a forward uses, besides its inputs.
class FoundInModule {
 public:
  explicit FoundInModule(const Module& module) { visit(module); }

  /// Throws std::invalid_argument naming a parameter that has changed since `before`.
  void check_values(const FoundInModule& before, const Module& module) const;
  bool trains_as(const FoundInModule& other) const { return training_ == other.training_; }
  /// Sets the mode of the module and all below it to the recorded one.
  void set_training(Module& module) const {
    size_t next = 0;
    set_training(module, next);
  }

 private:
  struct Value {
    const Parameter* parameter;
    Ref<Storage> storage;
    uint64_t version;
    bool operator==(const Value& other) const {
      return storage.get() == other.storage.get() && version == other.version;
    }
  };

  void visit(const Module& module) {
    training_.push_back(module.is_training());
    for (const auto& [name, parameter] : module.own_parameters()) {
      const Ref<Storage>& storage = parameter->value().storage();
      values_.push_back({parameter.get(), storage, storage->version()});
    }
    for (const auto& [name, child] : module.children()) visit(*child);
  }
  /// Sets parents before children, because setting a parent also sets its children.
  void set_training(Module& module, size_t& next) const {
    const bool training = training_[next++];
    if (module.is_training() != training) module.set_training(training);
    for (const auto& [name, child] : module.children()) set_training(*child, next);
  }

  std::vector<bool> training_;
  std::vector<Value> values_;
};

void FoundInModule::check_values(const FoundInModule& before, const Module& module) const {
  if (training_.size() != before.training_.size() || values_.size() != before.values_.size()) {
    fail(
        "recompute: parts of the module changed after forward, expected the same ones in backward");
  }
  for (size_t i = 0; i < values_.size(); ++i) {
    if (values_[i] == before.values_[i]) continue;
    for (const NamedParameter& named : module.named_parameters()) {
      if (named.parameter.get() != values_[i].parameter) continue;
      fail("recompute: parameter ", in_quotes(named.name()), " ", named.parameter->shape(),
           " changed after forward, expected the same one in backward; call backward before it "
           "changes");
    }
  }
}

/// Runs the second forward in the training mode of the first one.
class TrainingScope : NotCopied {
 public:
  TrainingScope(Module& module, const FoundInModule& now, const FoundInModule& then)
      : module_(module), now_(now), differs_(!now.trains_as(then)) {
    if (differs_) then.set_training(module_);
  }
  ~TrainingScope() {
    if (differs_) now_.set_training(module_);
  }

 private:
  Module& module_;
  const FoundInModule& now_;
  const bool differs_;
};

}  // namespace

void Module::set_recompute(bool recompute, std::vector<std::string> kept) {
  const KeptResults checked(kept);
  recompute_ = recompute;
  kept_ops_ = std::move(kept);
}

void Module::offload_activations(const Tier& tier) {
  for (const auto& [path, below] : named_modules()) {
    below->saved_tier_ = tier;
    below->store_.reset();
  }
}

const std::vector<std::string>& costly_ops() {
  static const std::vector<std::string> ops{"matmul", "linear", "linear_bias", "grouped_matmul",
                                            "attention"};
  return ops;
}

Tensors Module::run_forward(const Tensors& inputs,
                            const std::function<Tensors(const Tensors&)>& forward) {
  if (!recompute_ || !Context::current().grad_enabled) return forward(inputs);
  if (saved_tier_.offloads() && !store_) store_ = ActivationStore::in(saved_tier_);
  const auto first = std::make_shared<std::optional<FoundInModule>>();
  // A module called several times, as experts of parts are, uses its parameters until the last
  // recomputation; those of modules in it may belong to others that are resharded by then.
  const auto used = [this] {
    Tensors tensors;
    for (const auto& [name, parameter] : own_parameters()) tensors.push_back(parameter->tensor());
    return tensors;
  };
  return recompute_using(
      used,
      [this, first, kept = forward, life = std::weak_ptr(life_)](const Tensors& given) {
        if (life.expired())
          fail("recompute: the module no longer exists, expected it to exist until backward");
        if (!*first) {
          Tensors outputs = kept(given);
          // Only now, because the very first forward may be what lays out the parameters.
          first->emplace(*this);
          return outputs;
        }
        const FoundInModule now(*this);
        now.check_values(**first, *this);
        const TrainingScope scope(*this, now, **first);
        return kept(given);
      },
      inputs, kept_ops_, saved_tier_);
}

}  // namespace weft
