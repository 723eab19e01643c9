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

/// The memory in which the state of one parameter is stored.
struct Rest {
  Device device;
  bool pinned;
};

/// Returns zeros.
static Tensor memory_at(const Rest& rest, int64_t elements, DType dtype) {
  if (!rest.pinned) return zeros({elements}, {.dtype = dtype, .device = rest.device});
  const auto bytes = static_cast<size_t>(elements) * size_of(dtype);
  const Tensor memory = tensor_in(Storage::allocate_pinned(bytes), 0, {elements}, dtype);
  fill_(memory, 0);
  return memory;
}

/// Dtype of the state of a value.
static DType moment_of(const Tensor& value, DType asked) {
  return value.dtype() == f64 ? f64 : asked;
}

/// Returns zeros, adjacent where the values are; of dtype `asked`, but f64 for f64 values.
static Tensors make_moment(const Tensors& values, const std::vector<Rest>& rests,
                           const std::vector<Run>& runs, DType asked) {
  PurposeScope purpose(Purpose::optimizer);
  const auto dtype_of = [&](const Tensor& value) { return moment_of(value, asked); };
  Tensors moment(values.size());
  for (const Run& run : runs) {
    const DType dtype = dtype_of(values[run[0]]);
    int64_t elements = 0;
    for (size_t i : run) elements += values[i].box().shape.product();
    const Tensor memory = memory_at(rests[run[0]], elements, dtype);
    int64_t offset = 0;
    for (size_t i : run) {
      moment[i] =
          tensor_in(memory.storage(), offset, values[i].shape(), dtype, values[i].sharding());
      offset += values[i].box().shape.product();
    }
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (moment[i]) continue;
    moment[i] = zeros(values[i].shape(), {.dtype = dtype_of(values[i]),
                                          .device = rests[i].device,
                                          .sharding = values[i].sharding()});
  }
  return moment;
}

/// The same on disk, where nothing is adjacent.
static Tensors make_moment_on_disk(const Tensors& values, const DiskMemory& memory, DType asked) {
  Tensors moment;
  for (size_t i = 0; i < values.size(); ++i) {
    const DType dtype = moment_of(values[i], asked);
    const int64_t offset = memory.offset(i) / static_cast<int64_t>(size_of(dtype));
    moment.push_back(
        tensor_in(memory.storage(), offset, values[i].shape(), dtype, values[i].sharding()));
  }
  return moment;
}

void Optimizer::make_state() {
  if (!state_.empty()) return;
  Tensors values;
  std::vector<Rest> rests;
  for (const NamedParameter& named : parameters_) {
    if (!named.parameter->is_materialized()) {
      fail("optimizer: parameter ", named.name(),
           " has no memory, expected some; call materialize first");
    }
    ModuleSharder::lazy_init(*named.parameter);
    values.push_back(named.parameter->value());
    const Device used = named.parameter->device();
    const bool pinned = offload().is_host() && used.kind == DeviceKind::cuda;
    rests.push_back({pinned ? cpu : used, pinned});
  }
  if (offload().is_disk()) return make_state_on_disk(values);
  std::vector<size_t> all(values.size());
  std::iota(all.begin(), all.end(), size_t{0});
  const auto any = [](size_t, size_t) { return true; };
  const std::vector<Run> runs = adjacent_runs({&values}, all, any);
  for (size_t moment = 0; moment < moments().size(); ++moment) {
    runs_->state.push_back(make_moment(values, rests, runs, moment_dtype()));
  }
  show_state();
}

void Optimizer::make_state_on_disk(const Tensors& values) {
  for (const std::string& moment : moments()) {
    std::vector<DiskMemory::Array> arrays;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto element = static_cast<int64_t>(size_of(moment_of(values[i], moment_dtype())));
      arrays.push_back({concat("state ", moment, " of parameter ", parameters_[i].name()),
                        values[i].box().shape.product() * element});
    }
    runs_->files.push_back(
        DiskMemory::make(offload().directory(), std::move(arrays), DiskPath::cached_if_it_fits));
    runs_->state.push_back(make_moment_on_disk(values, *runs_->files.back(), moment_dtype()));
  }
  show_state();
}

void Optimizer::show_state() {
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
