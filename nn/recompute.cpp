// SPDX-License-Identifier: Apache-2.0
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include "nn/activation_store.h"
#include "weft/autograd.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/tape.h"
#include "weft/module.h"
#include "weft/storage.h"

namespace weft {

namespace {

/// A run of `function` that backward repeats: its inputs and the context it ran in.
struct RepeatedRun {
  std::function<Tensors(const Tensors&)> function;
  Tensors inputs;
  std::vector<uint64_t> versions;
  RandomState random;
  Traffic traffic;
  /// Null if no results are kept.
  std::shared_ptr<KeptResults> kept;
  /// The inputs at these positions and then all kept results, if they rest in a tier.
  std::vector<size_t> moved = {};
  std::shared_ptr<SavedActivations> saved = {};
  /// True for each input that requires a gradient.
  std::vector<bool> differentiable = {};
};

}  // namespace

/// Returns `input` as the start of the repeated run's tape. Its gradient is stored in `caught`
/// without a copy, which a leaf would make.
static Tensor repeated_input(const Tensor& input, bool differentiable, size_t i,
                             const std::shared_ptr<Tensors>& caught) {
  if (!input || !differentiable) return input;
  return record("recompute input", {}, {input}, [i, caught](const Tensors& gradients) {
    (*caught)[i] = gradients[0];
    return Tensors();
  })[0];
}

[[noreturn]] static void fail_input(size_t i, const Tensor& input) {
  fail("recompute: input ", i, " ", input.shape(),
       " was changed in place after forward, expected the same values in backward");
}

/// Moves the inputs that other ops computed, and the kept results, to the store.
static void offload(RepeatedRun& run, ActivationStore& store) {
  Tensors all;
  std::vector<uint64_t> versions;
  for (size_t i = 0; i < run.inputs.size(); ++i) {
    Tensor& input = run.inputs[i];
    if (!input || !run.differentiable[i] || input.is_leaf()) continue;
    run.moved.push_back(i);
    all.push_back(std::exchange(input, {}).detach());
    versions.push_back(run.versions[i]);
  }
  if (run.kept) {
    for (Tensor& result : run.kept->release()) {
      versions.push_back(result.storage()->version());
      all.push_back(std::move(result));
    }
  }
  if (!all.empty()) run.saved = store.save(std::move(all), versions);
}

/// Brings the inputs and kept results back into memory.
static Tensors inputs_of(const RepeatedRun& run) {
  Tensors inputs = run.inputs;
  if (!run.saved) return inputs;
  Tensors all = run.saved->take();
  const auto kept = all.begin() + static_cast<ptrdiff_t>(run.moved.size());
  const std::optional<size_t> changed = run.saved->changed();
  if (changed && *changed < run.moved.size()) fail_input(run.moved[*changed], all[*changed]);
  if (changed) {
    fail("recompute: a kept result ", all[*changed].shape(),
         " was changed in place after forward, expected the same values in backward");
  }
  for (size_t i = 0; i < run.moved.size(); ++i) inputs[run.moved[i]] = std::move(all[i]);
  if (run.kept) run.kept->restore({std::move_iterator(kept), std::move_iterator(all.end())});
  return inputs;
}

static Tensors repeat(const RepeatedRun& run, const std::shared_ptr<Tensors>& caught) {
  // The context of the first run, but for the recording.
  const TrafficScope traffic(run.traffic);
  const ContextSetting<&Context::random> random(run.random);
  const ContextSetting<&Context::grad_enabled> recording(true);
  Tensors inputs = inputs_of(run);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_here = static_cast<bool>(run.inputs[i]);
    if (is_here && inputs[i].storage()->version() != run.versions[i]) fail_input(i, inputs[i]);
    inputs[i] = repeated_input(inputs[i], run.differentiable[i], i, caught);
  }
  const KeptResults::Scope kept(run.kept.get(), KeptResults::Run::repeated);
  return run.function(inputs);
}

/// Outputs without gradients, such as indices, are passed on unrecorded.
static bool is_differentiable(const Tensor& output) {
  return output && is_floating(output.dtype());
}

static Tensors gradients_of_repeated(const RepeatedRun& run, const Tensors& gradients) {
  auto caught = std::make_shared<Tensors>(run.inputs.size());
  Tensors outputs = repeat(run, caught);
  std::erase_if(outputs, [](const Tensor& output) { return !is_differentiable(output); });
  if (outputs.size() != gradients.size()) {
    fail("recompute: number of results is ", outputs.size(), " in backward, expected ",
         gradients.size(), ", as in forward");
  }
  Tensors roots, given;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!gradients[i] || !outputs[i].requires_grad()) continue;
    roots.push_back(outputs[i]);
    given.push_back(gradients[i]);
  }
  if (!roots.empty()) backward(roots, given);
  return std::move(*caught);
}

/// The same for a backward that records, keeps the tape or computes chosen gradients: inputs stay
/// connected, and what was kept stays.
static Tensors special_gradients_of_repeated(RepeatedRun& run, const Tensors& gradients) {
  if (run.saved) {
    run.inputs = inputs_of(run);
    run.saved.reset();
  }
  const TrafficScope traffic(run.traffic);
  const ContextSetting<&Context::random> random(run.random);
  const ContextSetting<&Context::grad_enabled> recording(true);
  const KeptResults::Scope none(nullptr, KeptResults::Run::first);
  Tensors inputs = run.inputs, watched;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) continue;
    if (inputs[i].storage()->version() != run.versions[i]) fail_input(i, inputs[i]);
    if (!run.differentiable[i]) continue;
    const Tensor input = as_input(i, inputs[i]);
    inputs[i] =
        record("recompute input", {input}, {input}, [](const Tensors& given) { return given; })[0];
    watched.push_back(inputs[i]);
  }
  Tensors outputs = run.function(inputs), roots, given;
  std::erase_if(outputs, [](const Tensor& output) { return !is_differentiable(output); });
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!gradients[i] || !outputs[i].requires_grad()) continue;
    roots.push_back(outputs[i]);
    given.push_back(gradients[i]);
  }
  Tensors found =
      roots.empty() ? Tensors(watched.size()) : repeated_gradients(roots, given, watched);
  Tensors all(inputs.size());
  auto next = found.begin();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] && run.differentiable[i]) all[i] = std::move(*next++);
  }
  return all;
}

/// `recompute` of a function that uses the tensors that `used` returns after the first run. Their
/// gradients are complete when all recomputations of a backward that use them have run.
static Tensors recompute_using(const std::function<Tensors()>& used,
                               const std::function<Tensors(const Tensors&)>& function,
                               const Tensors& inputs, const std::vector<std::string>& kept,
                               const Tier& offload_to) {
  const Context& context = Context::current();
  if (!context.grad_enabled) {
    // The repeated run of an outer recomputation records this one, with separate results.
    const KeptResults::Scope none(nullptr, KeptResults::Run::first);
    return function(inputs);
  }
  RepeatedRun run{function, inputs, {}, context.random, context.traffic, {}};
  if (!kept.empty()) run.kept = std::make_shared<KeptResults>(kept);
  for (const Tensor& input : inputs) {
    run.versions.push_back(input ? input.storage()->version() : 0);
    run.differentiable.push_back(input && input.requires_grad());
  }
  Tensors outputs;
  {
    NoGrad no_grad;
    const KeptResults::Scope scope(run.kept.get(), KeptResults::Run::first);
    outputs = function(inputs);
  }
  if (offload_to.offloads()) offload(run, *ActivationStore::in(offload_to));
  Tensors recorded;
  std::copy_if(outputs.begin(), outputs.end(), std::back_inserter(recorded), is_differentiable);
  Tensors operands = inputs;
  for (Tensor& tensor : used()) operands.push_back(std::move(tensor));
  const size_t count = operands.size();
  const auto shared = std::make_shared<RepeatedRun>(std::move(run));
  recorded =
      record_repeated("recompute", operands, recorded, [shared, count](const Tensors& given) {
        Tensors gradients = backward_is_special() ? special_gradients_of_repeated(*shared, given)
                                                  : gradients_of_repeated(*shared, given);
        gradients.resize(count);  // those of the used tensors are complete with the repeated run
        return gradients;
      });
  auto next = recorded.begin();
  for (Tensor& output : outputs) {
    if (is_differentiable(output)) output = *next++;
  }
  return outputs;
}

Tensors recompute(const std::function<Tensors(const Tensors&)>& function, const Tensors& inputs,
                  const std::vector<std::string>& kept, const Tier& offload_to) {
  return recompute_using([] { return Tensors(); }, function, inputs, kept, offload_to);
}

namespace {

/// The state of a module and all below it that a forward uses, besides its inputs.
class FoundInModule {
 public:
  explicit FoundInModule(const Module& module) { visit(module); }

  /// Throws std::invalid_argument naming a parameter that has changed since `before`.
  void check_values(const FoundInModule& before, const Module& module) const {
    if (training_.size() != before.training_.size() || values_.size() != before.values_.size()) {
      fail("recompute: parts of the module changed after forward, expected the same ones in ",
           "backward");
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
          // This comes so late because the very first forward may be what lays out the parameters.
          first->emplace(*this);
          return outputs;
        }
        const FoundInModule now(*this);
        now.check_values(**first, *this);
        if (now.trains_as(**first)) return kept(given);
        (*first)->set_training(*this);
        auto restore = [this](const FoundInModule* mode) { mode->set_training(*this); };
        const std::unique_ptr<const FoundInModule, decltype(restore)> restored(&now, restore);
        return kept(given);
      },
      inputs, kept_ops_, saved_tier_);
}

}  // namespace weft
