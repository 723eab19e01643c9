// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "nn/parameter_memory.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/module_sharder.h"
#include "weft/ops/factories.h"
#include "weft/optimizers.h"

namespace weft {

/// Returns zeros for the state of parameters that are used on `device`: in pinned memory of the
/// host if a tier keeps them there for a GPU.
static Tensor memory_for(Device device, const Tier& tier, int64_t elements, DType dtype) {
  if (!tier.is_host() || device.kind != DeviceKind::cuda) {
    return zeros({elements}, {.dtype = dtype, .device = device});
  }
  const auto bytes = static_cast<size_t>(elements) * size_of(dtype);
  const Tensor memory = tensor_in(Storage::allocate_pinned(bytes), 0, {elements}, dtype);
  fill_(memory, 0);
  return memory;
}

/// Returns zeros in the layouts of `values`, adjacent where these are.
static Tensors make_moment(const Tensors& values, const std::vector<NamedParameter>& parameters,
                           const Tier& tier, DType asked) {
  PurposeScope purpose(Purpose::optimizer);
  std::vector<size_t> all(values.size());
  std::iota(all.begin(), all.end(), size_t{0});
  Tensors moment(values.size());
  for (const Run& run : adjacent_runs({&values}, all)) {
    const DType dtype = state_dtype(values[run[0]], asked);
    int64_t elements = 0;
    for (size_t i : run) elements += values[i].box().shape.product();
    const Device device = parameters[run[0]].parameter->device();
    const Tensor memory = memory_for(device, tier, elements, dtype);
    int64_t offset = 0;
    for (size_t i : run) {
      moment[i] =
          tensor_in(memory.storage(), offset, values[i].shape(), dtype, values[i].sharding());
      offset += values[i].box().shape.product();
    }
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (moment[i]) continue;
    const Device device = parameters[i].parameter->device();
    const bool on_host = tier.is_host() && device.kind == DeviceKind::cuda;
    moment[i] = zeros(values[i].shape(), {.dtype = state_dtype(values[i], asked),
                                          .device = on_host ? cpu : device,
                                          .sharding = values[i].sharding()});
  }
  return moment;
}

void Optimizer::make_state() {
  if (!state_.empty()) return;
  Tensors values;
  for (const NamedParameter& named : parameters_) {
    if (!named.parameter->is_materialized()) {
      fail("optimizer: parameter ", named.name(),
           " has no memory, expected some; call materialize first");
    }
    ModuleSharder::lazy_init(*named.parameter);
    values.push_back(named.parameter->value());
  }
  for (const std::string& moment : moments()) {
    if (offload().is_disk()) {
      StateOnDisk made =
          state_on_disk(offload(), concat("state ", moment), parameters_, moment_dtype());
      runs_->state.push_back(std::move(made.tensors));
      runs_->files.push_back(std::move(made.file));
    } else {
      runs_->state.push_back(make_moment(values, parameters_, offload(), moment_dtype()));
    }
  }
  state_.resize(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    for (const Tensors& moment : runs_->state) state_[i].push_back(moment[i]);
  }
}

const Tensors& Optimizer::state(size_t parameter) {
  if (parameter >= parameters_.size()) {
    fail("optimizer: parameter is ", parameter, ", expected one below ", parameters_.size());
  }
  make_state();
  return state_[parameter];
}

void Optimizer::copy_state(const Optimizer& other) {
  if (other.state_.empty()) return;
  make_state();
  const NoGrad no_grad;
  for (size_t i = 0; i < state_.size(); ++i) {
    for (size_t m = 0; m < state_[i].size(); ++m) {
      const Tensor from = in_memory(other.state_[i][m]);
      rests_on_disk(state_[i][m]) ? write_to_disk(state_[i][m], from) : copy_(state_[i][m], from);
    }
  }
}

}  // namespace weft
