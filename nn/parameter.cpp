// SPDX-License-Identifier: Apache-2.0
#include "weft/context.h"
#include "weft/error.h"
#include "weft/module.h"
#include "weft/ops/factories.h"

namespace weft {

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

void Parameter::set_value(Tensor value) {
  if (!value) fail("set_value: no tensor for a parameter ", shape());
  if (!(value.shape() == shape())) {
    fail("set_value: a tensor ", value.shape(), " does not fit a parameter ", shape());
  }
  value.set_requires_grad(trainable_);
  value_ = std::move(value);
}

bool Parameter::is_materialized() const { return value_.device().kind != DeviceKind::meta; }

void Parameter::materialize(Device device) {
  if (initialized_) return;
  if (!is_materialized()) {
    PurposeScope purpose(Purpose::parameters);
    set_value(empty(shape(), {.dtype = dtype(), .device = device, .sharding = value_.sharding()}));
  }
  NoGrad no_grad;
  if (initializer_ && is_materialized()) initializer_(value_);
  initialized_ = is_materialized();
}

}  // namespace weft
