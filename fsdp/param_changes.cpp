// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "fsdp/param_group.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/module_sharder.h"
#include "weft/extend/tape.h"

namespace weft::fsdp {

Gradients ParamGroup::new_gradients() const {
  return {roles_, options_.bucket_bytes, options_.offload.gradients, options_.quantization};
}

/// Lays out the gradients of the trainable parameters, with the settings that they had.
void ParamGroup::add_gradients() {
  Gradients made = new_gradients();
  made.take_settings(gradients_);
  gradients_ = std::move(made);
  frozen_ = 0;
  size_t grads = 0;
  for (const auto& param : params_) {
    frozen_ += !param->trainable;
    if (!param->trainable) continue;
    param->grad = grads++;
    gradients_.add(*param);
  }
  gradients_.lay_out();
}

bool ParamGroup::trainable_changed() const {
  const auto changed = std::find_if(parameters_.begin(), parameters_.end(), [](const Adopted& own) {
    return own.named.parameter->is_trainable() != own.trainable;
  });
  if (changed == parameters_.end()) return false;
  if (const FsdpParam* kept = gradients_.find_kept()) {
    fail("fully_shard: parameter ", path_of(changed->named, changed->member), " was ",
         changed->trainable ? "frozen" : "unfrozen", " while parameter ", kept->name,
         " has a gradient, expected none; call zero_grad first");
  }
  return true;
}

void ParamGroup::unbind_all() {
  for (const auto& param : params_) {
    if (param->unsharded && param->unsharded.storage()->is_bound()) {
      param->unsharded.storage()->unbind();
    }
  }
}

void ParamGroup::update_trainable() {
  unbind_all();
  for (Adopted& own : parameters_) own.trainable = own.named.parameter->is_trainable();
  for (const auto& param : params_) param->trainable = param->parameter->is_trainable();
  add_gradients();
  gradients_.set_device(device_);
  for (size_t i = 0; i < params_.size(); ++i) {
    show_slice(*params_[i]);
    make_unsharded(i);
  }
}

void ParamGroup::add_layouts(Layouts& layouts) const {
  for (const auto& param : params_) layouts[param->parameter.get()] = param->other_axes;
}

void ParamGroup::begin_readopting(const Layouts& layouts) {
  previous_ = std::exchange(parameters_, {});
  layouts_ = layouts;
}

bool ParamGroup::was_readopted() const {
  const auto has = [](const std::vector<Adopted>& all, const Adopted& one) {
    return std::any_of(all.begin(), all.end(),
                       [&](const Adopted& other) { return other.is(*one.named.parameter); });
  };
  return parameters_.size() != previous_.size() ||
         !std::all_of(parameters_.begin(), parameters_.end(),
                      [&](const Adopted& own) { return has(previous_, own); });
}

void ParamGroup::check_readopting() const {
  if (!was_readopted()) return;
  for (const Adopted& own : parameters_) {
    if (!own.named.parameter->grad()) continue;
    fail("fully_shard: the members of ", title(), " changed while parameter ",
         path_of(own.named, own.member), " has a gradient, expected none; call zero_grad first");
  }
}

bool ParamGroup::end_readopting() {
  const bool changed = was_readopted();
  const std::vector<Adopted> before = std::exchange(previous_, {});
  if (!changed) {
    // Their order is that of the memory.
    parameters_ = before;
    return false;
  }
  unbind_all();
  for (const Adopted& own : before) release(*own.named.parameter);
  built_ = false;
  return true;
}

void ParamGroup::materialize_all(Device device) {
  materialize(device);
  for (const auto& param : params_) param->parameter->materialize(device);
}

void ParamGroup::release(Parameter& parameter) {
  ModuleSharder::set_used(parameter, {});
  const Tensor gradient = parameter.grad();
  // A handle without the sink of a slice. Its file ends with the group.
  ModuleSharder::lay_out(parameter, in_memory(parameter.value()));
  if (gradient && parameter.is_trainable()) parameter.value().set_grad(gradient);
}

}  // namespace weft::fsdp
