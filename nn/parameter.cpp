// SPDX-License-Identifier: Apache-2.0
#include "weft/parameter.h"

#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/ops/factories.h"

namespace weft {

/// Returns a copy of the elements in separate memory.
static Tensor kept_apart(const Tensor& value) {
  const NoGrad no_grad;
  TensorOptions options{.dtype = value.dtype(), .device = value.device()};
  if (value.is_sharded()) options.sharding = value.sharding();
  const Tensor own = empty(value.shape(), options);
  copy_(own, value.detach());
  return own;
}

Parameter::Parameter(const Shape& shape, DType dtype, Initializer initializer)
    : value_(empty(shape, {.dtype = dtype, .device = meta})),
      initializer_(std::move(initializer)),
      trainable_(is_floating(dtype)) {
  if (trainable_) value_.set_requires_grad();
}

void Parameter::clear_grad() const {
  if (value_.requires_grad()) value_.set_grad({});
}

void Parameter::set_trainable(bool trainable) {
  value_.set_requires_grad(trainable);
  trainable_ = trainable;
}

void Parameter::fail_stale() const {
  throw_runtime_error(
      concat("parameter: ", shape(),
             " was changed after it was gathered for forward; the next forward gathers it "
             "again, until then take its value()"));
}

void Parameter::set_value(Tensor value) {
  const bool has_memory =
      value && value.device().kind != DeviceKind::meta && value.storage()->is_bound();
  // Code that shards the parameter copies the elements later, when other owners of them may have
  // changed them. Optimizers need dense values to join neighbours.
  if (has_memory && (used_ || !value.local().block().is_dense())) value = kept_apart(value);
  lay_out(std::move(value));
  initialized_ = initialized_ || is_materialized();
}

void Parameter::lay_out(Tensor value) {
  if (!value) fail("set_value: tensor is undefined, expected one of shape ", shape());
  if (!(value.shape() == shape())) {
    fail("set_value: shape is ", value.shape(), ", expected ", shape(), ", that of the parameter");
  }
  // A separate handle: the caller's may be a leaf, or part of a graph.
  value = value.detach();
  value.set_requires_grad(trainable_);
  value_ = std::move(value);
}

bool Parameter::is_materialized() const { return value_.device().kind != DeviceKind::meta; }

void Parameter::materialize(Device device) {
  if (initialized_) return;
  if (!is_materialized()) {
    PurposeScope purpose(Purpose::parameters);
    lay_out(empty(shape(), {.dtype = dtype(), .device = device, .sharding = value_.sharding()}));
  }
  NoGrad no_grad;
  if (initializer_ && is_materialized()) {
    const bool on_disk = rests_on_disk(value_);
    const Tensor filled = on_disk ? memory_like(value_) : value_;
    initializer_(filled);
    if (on_disk) write_to_disk(value_, filled);
  }
  initialized_ = is_materialized();
}

}  // namespace weft
