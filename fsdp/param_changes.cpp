// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "fsdp/param_group.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/module_sharder.h"
#include "weft/extend/tape.h"
#include "weft/ops/factories.h"

namespace weft::fsdp {

std::string ParamGroup::title() const {
  return name_.empty() ? "the model" : concat("module ", in_quotes(name_));
}

bool ParamGroup::offloads() const {
  return options_.offload.parameters.offloads() || options_.offload.gradients.offloads();
}

int64_t ParamGroup::measured_slice_bytes() const {
  return slices_ && !disk_ ? static_cast<int64_t>(slices_->bytes()) : 0;
}

void ParamGroup::allocate_slices() {
  PurposeScope purpose(Purpose::parameters);
  if (rests_on_disk() && device_.kind != DeviceKind::meta) {
    std::vector<DiskMemory::Array> arrays;
    for (const auto& param : params_) {
      const auto element = static_cast<int64_t>(size_of(param->types.storage));
      arrays.push_back({concat("parameter ", param->name), param->sharded_elements() * element});
    }
    disk_ = DiskMemory::make(options_.offload.parameters.directory(), std::move(arrays),
                             DiskPath::cached);
    slices_ = disk_->storage();
    return;
  }
  const bool pinned = options_.offload.parameters.is_host() && device_.kind == DeviceKind::cuda;
  slices_ =
      pinned ? Storage::allocate_pinned(slice_bytes_) : Storage::allocate(slice_bytes_, device_);
}

Tensor ParamGroup::slice_of(const FsdpParam& param) const {
  return local_in(slices_, param.slice_offset, param.shape, param.types.storage,
                  param.sharded_layout);
}

/// Keeps a value that does not lie in the slices until they have memory.
void ParamGroup::keep_value(FsdpParam& param) {
  const Tensor value = param.parameter->value().detach();
  if (!param.parameter->is_materialized() || value.storage() == slices_) return;
  // The file of another group may end before the copy is made.
  if (weft::rests_on_disk(value)) {
    param.pending_value = in_memory(value);
    return;
  }
  param.pending_value = value.is_sharded() ? value : distribute(value, roles_.mesh.root(), {});
}

void ParamGroup::copy_value(FsdpParam& param) {
  if (!param.pending_value) return;
  const NoGrad no_grad;
  const Tensor slice = slice_of(param), pending = std::exchange(param.pending_value, {});
  if (!disk_) return copy_(slice, pending);
  const Tensor whole = memory_like(slice);
  copy_(whole, pending);
  write_to_disk(slice, whole);
}

/// Makes the slice the parameter's value. What the tape computes for it goes where the gradients of
/// the unsharded parameter go.
void ParamGroup::show_slice(FsdpParam& param) {
  ModuleSharder::lay_out(*param.parameter, slice_of(param));
  if (param.unsharded) set_used_leaf(param.parameter->value(), param.unsharded);
}

void ParamGroup::show(FsdpParam& param) {
  make_unsharded(param);
  show_slice(param);
}

void ParamGroup::run_post_accumulate_hooks() const {
  for (const auto& param : params_) {
    if (param->trainable) weft::run_post_accumulate_hooks(param->parameter->value());
  }
}

void ParamGroup::copy_set_values() {
  if (!has_slices()) return;
  for (auto& param : params_) {
    keep_value(*param);
    if (!param->pending_value) continue;
    copy_value(*param);
    show_slice(*param);
  }
}

void ParamGroup::materialize(Device device) {
  if (!awaits_memory()) return;
  for (Level& level : levels_) level.drop();
  set_device(device);
  for (auto& param : params_) keep_value(*param);
  allocate_slices();
  for (const auto& param : params_) {
    if (device.kind != DeviceKind::meta) copy_value(*param);
    show(*param);
  }
}

bool ParamGroup::take_slices_changed() {
  const Version version{slices_, slices_->version()};
  return std::exchange(seen_, version) != version;
}

/// Lays out the gradients of the trainable parameters, with the settings that they had.
void ParamGroup::add_gradients() {
  Gradients made(roles_, options_);
  made.settings = gradients_.settings;
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
  const auto changed = std::ranges::find_if(parameters_, [](const Adopted& own) {
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
    if (param->unsharded) param->unsharded.storage()->unbind();
  }
}

void ParamGroup::update_trainable() {
  unbind_all();
  for (Adopted& own : parameters_) own.trainable = own.named.parameter->is_trainable();
  for (const auto& param : params_) param->trainable = param->parameter->is_trainable();
  add_gradients();
  gradients_.set_device(device_);
  for (const auto& param : params_) show(*param);
}

void ParamGroup::add_layouts(Layouts& layouts) const {
  for (const auto& param : params_) layouts[param->parameter.get()] = param->other_axes;
}

void ParamGroup::begin_readopting(const Layouts& layouts) {
  previous_ = std::exchange(parameters_, {});
  layouts_ = layouts;
}

bool ParamGroup::was_readopted() const {
  const auto is_new = [&](const Adopted& own) {
    return std::ranges::none_of(
        previous_, [&](const Adopted& other) { return other.is(*own.named.parameter); });
  };
  return parameters_.size() != previous_.size() || std::ranges::any_of(parameters_, is_new);
}

void ParamGroup::check_readopting() const {
  if (!was_readopted()) return;
  for (const Adopted& own : parameters_) {
    if (!own.named.parameter->grad()) continue;
    fail("fully_shard: the members of ", title(), " changed while parameter ",
         path_of(own.named, own.member), " has a gradient, expected none; call zero_grad first");
  }
}

/// Gives up a parameter: forward uses its value from now on.
static void release(Parameter& parameter) {
  ModuleSharder::set_used(parameter, {});
  const Tensor gradient = parameter.grad();
  // A handle without the sink of a slice. Its file ends with the group.
  ModuleSharder::lay_out(parameter, in_memory(parameter.value()));
  if (gradient && parameter.is_trainable()) parameter.value().set_grad(gradient);
}

bool ParamGroup::end_readopting() {
  if (!was_readopted()) {
    // Their order is that of the memory.
    cancel_readopting();
    return false;
  }
  unbind_all();
  for (const Adopted& own : std::exchange(previous_, {})) release(*own.named.parameter);
  built_ = false;
  return true;
}

void ParamGroup::materialize_all(Device device) {
  materialize(device);
  for (const auto& param : params_) param->parameter->materialize(device);
}

}  // namespace weft::fsdp
