// SPDX-License-Identifier: Apache-2.0
#include "weft/adapters.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "nn/checks.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/module_sharder.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/in_place.h"
#include "weft/ops/networks.h"
#include "weft/ops/products.h"
#include "weft/transformer.h"

namespace weft {

static constexpr const char* kAllLinear = "all-linear";
static constexpr const char* kHead = "lm_head";

double AdapterOptions::scale() const {
  const auto by = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(by) : by);
}

AdapterInput::AdapterInput(int64_t in, const AdapterOptions& options)
    : Linear(in, options.rank), options_(options) {}

/// Adds the product of the adapter to what the Linear gives. Keeps the dtype of the Linear.
static Tensors with_adapter(AdapterInput& a, Linear& b, const Tensors& inputs,
                            const Tensors& outputs) {
  const AdapterOptions& options = a.options();
  const bool drops = options.dropout > 0 && a.is_training();
  const Tensor x = drops ? dropout(inputs[0], options.dropout) : inputs[0];
  // The scale is applied to the narrow side.
  const Tensor change = b(mul(a(x), options.scale()));
  const DType dtype = outputs[0].dtype();
  return {add(outputs[0], change.dtype() == dtype ? change : cast(change, dtype))};
}

void AdapterInput::attach(Linear& linear, const std::shared_ptr<AdapterInput>& a,
                          const std::shared_ptr<Linear>& b) {
  linear.adopt("lora_A", a);
  linear.adopt("lora_B", b);
  ModuleHooks hooks;
  hooks.after = [a, b](const Tensors& inputs, const Tensors& outputs) {
    return with_adapter(*a, *b, inputs, outputs);
  };
  a->hook_ = linear.add_hooks(std::move(hooks));
}

void AdapterInput::detach(Linear& linear) {
  hook_.remove();
  linear.remove("lora_B");
  linear.remove("lora_A");
}

static void check_options(const AdapterOptions& options) {
  check_positive("add_adapters", "rank", options.rank);
  if (!std::isfinite(options.alpha)) {
    fail("add_adapters: alpha is ", options.alpha, ", expected a finite number");
  }
  if (!(options.dropout >= 0 && options.dropout < 1)) {
    fail("add_adapters: dropout is ", options.dropout, ", expected one in [0, 1)");
  }
  if (options.targets.empty()) {
    fail("add_adapters: number of targets is 0, expected at least 1, such as q_proj");
  }
  const bool names_all = std::ranges::count(options.targets, kAllLinear) > 0;
  if (names_all && options.targets.size() > 1) {
    fail("add_adapters: targets are all-linear and others, expected all-linear alone");
  }
}

static std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

static bool is_at(const std::string& path, const std::string& target) {
  return path == target || path.ends_with("." + target);
}

namespace {

using NamedLinear = std::pair<std::string, Linear*>;

/// Finds the Linear modules that targets name.
class Targets {
 public:
  explicit Targets(Module& model) : model_(model) {
    for (const auto& [path, module] : model.named_modules()) {
      if (auto* linear = dynamic_cast<Linear*>(module)) linears_.emplace_back(path, linear);
    }
  }

  std::vector<NamedLinear> matching(const std::vector<std::string>& targets) const {
    if (targets[0] == kAllLinear) return all();
    for (const std::string& target : targets) check(target);
    std::vector<NamedLinear> found;
    for (const NamedLinear& named : linears_) {
      const auto names = [&](const std::string& target) { return is_at(named.first, target); };
      if (std::ranges::any_of(targets, names)) found.push_back(named);
    }
    return found;
  }

 private:
  std::vector<NamedLinear> all() const {
    std::vector<NamedLinear> found;
    for (const NamedLinear& named : linears_) {
      if (last_part(named.first) != kHead) found.push_back(named);
    }
    if (found.empty()) {
      fail("add_adapters: number of Linear modules but the head is 0, expected at least 1");
    }
    return found;
  }

  void check(const std::string& target) const {
    const auto is_named = [&](const NamedLinear& named) { return is_at(named.first, target); };
    const bool exists = std::ranges::any_of(linears_, is_named);
    const bool has_own_loss = dynamic_cast<const TransformerModel*>(&model_) != nullptr;
    if (exists && has_own_loss && target == kHead) {
      fail("add_adapters: target is ", in_quotes(target),
           ", expected another Linear than the head, whose product is part of the loss");
    }
    if (exists) return;
    for (const NamedParameter& named : model_.named_parameters()) {
      if (!is_at(named.name(), target)) continue;
      fail("add_adapters: target ", in_quotes(target), " is parameter ", in_quotes(named.name()),
           ", expected the name of a Linear; weights of experts are multiplied in groups");
    }
    std::set<std::string> names;
    for (const NamedLinear& named : linears_) names.insert(last_part(named.first));
    fail("add_adapters: target ", in_quotes(target), " matches no Linear, expected one of ",
         listed(std::vector<std::string>(names.begin(), names.end())));
  }

  Module& model_;
  std::vector<NamedLinear> linears_;
};

}  // namespace

/// The model as it must be before adapters are added.
static void check_model(Module& model) {
  for (const auto& [path, module] : model.named_modules()) {
    if (dynamic_cast<const AdapterInput*>(module)) {
      fail("add_adapters: module ", in_quotes(path), " is an adapter, expected a model without");
    }
    bool is_sharded = ModuleSharder::is_sharded(*module);
    for (const auto& [name, parameter] : module->own_parameters()) {
      is_sharded = is_sharded || parameter->value().is_sharded();
    }
    if (!is_sharded) continue;
    fail("add_adapters: module ", in_quotes(path),
         " is sharded, expected a model before parallelize and fully_shard");
  }
}

std::vector<std::string> add_adapters(Module& model, const AdapterOptions& options) {
  check_options(options);
  check_model(model);
  const std::vector<NamedLinear> linears = Targets(model).matching(options.targets);
  for (const ParameterPtr& parameter : model.parameters()) {
    if (is_floating(parameter->dtype())) parameter->set_trainable(false);
  }
  std::vector<std::string> paths;
  for (const auto& [path, linear] : linears) {
    const Parameter& weight = *linear->own_parameters()[0].second;
    const auto a = std::make_shared<AdapterInput>(in_features(*linear), options);
    const auto b = std::make_shared<Linear>(options.rank, weight.shape()[0]);
    b->own_parameters()[0].second->set_initializer(constant_values(0));
    AdapterInput::attach(*linear, a, b);
    if (weight.is_materialized()) {
      a->materialize(weight.device());
      b->materialize(weight.device());
    }
    paths.push_back(path);
  }
  return paths;
}

std::vector<AdaptedLinear> adapted_linears(Module& model) {
  std::vector<AdaptedLinear> found;
  for (const auto& [path, module] : model.named_modules()) {
    auto* linear = dynamic_cast<Linear*>(module);
    if (!linear) continue;
    AdaptedLinear adapted{path, linear, nullptr, nullptr};
    for (const auto& [name, child] : linear->children()) {
      if (name == "lora_A") adapted.a = std::dynamic_pointer_cast<AdapterInput>(child);
      if (name == "lora_B") adapted.b = std::dynamic_pointer_cast<Linear>(child);
    }
    if (adapted.a && adapted.b) found.push_back(std::move(adapted));
  }
  return found;
}

bool is_adapter_parameter(const std::string& name) {
  return name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight");
}

void merge_adapters(Module& model) {
  const std::vector<AdaptedLinear> adapted = adapted_linears(model);
  if (adapted.empty()) fail("merge_adapters: number of adapters is 0, expected at least 1");
  for (const AdaptedLinear& one : adapted) {
    if (!packed_columns(*one.linear)) continue;
    fail("merge_adapters: weight of ", in_quotes(one.path),
         " is quantized, expected a floating one; load the base without quantize_base");
  }
  const NoGrad no_grad;
  for (const auto& [path, linear, a, b] : adapted) {
    const auto value = [](Module& of) { return of.own_parameters()[0].second->value().detach(); };
    const Tensor weight = value(*linear);
    const Tensor change = mul(matmul(value(*b), value(*a)), a->options().scale());
    copy_(weight, add(weight, change));
    a->detach(*linear);
  }
}

}  // namespace weft
