// SPDX-License-Identifier: Apache-2.0
#include <range/v3/view/enumerate.hpp>
#include <utility>

#include "fsdp/param_group.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/module_sharder.h"
#include "weft/extend/tape.h"
#include "weft/ops/factories.h"

namespace weft::fsdp {

/// The sink of a slice, which gets its gradient from the reductions alone: a gradient that the tape
/// computes for it would be lost.
class ParamGroup::Refusal final : public GradientSink {
 public:
  explicit Refusal(std::string name) : name_(std::move(name)) {}
  Destination destination() override { refuse(); }
  void complete() override { refuse(); }

 private:
  [[noreturn]] void refuse() const {
    fail("fully_shard: the loss depends on value() of parameter ", name_,
         ", which is this rank's slice, expected on tensor()");
  }
  std::string name_;
};

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

/// Makes the slice the parameter's value.
void ParamGroup::show_slice(FsdpParam& param) {
  ModuleSharder::lay_out(*param.parameter, slice_of(param));
  if (param.trainable) {
    set_gradient_sink(param.parameter->value(), std::make_shared<Refusal>(param.name));
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
  for (const auto& [i, param] : ranges::views::enumerate(params_)) {
    if (device.kind != DeviceKind::meta) copy_value(*param);
    show_slice(*param);
    make_unsharded(i);
  }
}

bool ParamGroup::take_slices_changed() {
  const Version version{slices_, slices_->version()};
  return std::exchange(seen_, version) != version;
}

}  // namespace weft::fsdp
