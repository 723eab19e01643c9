// SPDX-License-Identifier: Apache-2.0
#include "weft/ema.h"

#include <utility>

#include "nn/parameter_memory.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/views.h"
#include "weft/ops.h"

namespace weft {

Ema::Ema(std::vector<NamedParameter> parameters, double decay)
    : parameters_(std::move(parameters)), decay_(0) {
  if (parameters_.empty()) fail("ema: number of parameters is 0, expected at least 1");
  set_decay(decay);
}

void Ema::set_decay(double decay) {
  if (!(decay >= 0 && decay <= 1)) fail("ema: decay is ", decay, ", expected a number from 0 to 1");
  decay_ = decay;
}

const Tensors& Ema::averages() {
  if (!averages_.empty()) return averages_;
  Tensors made;
  const PurposeScope purpose(Purpose::optimizer);
  for (const NamedParameter& named : parameters_) {
    const Tensor& value = named.parameter->value();
    if (!named.parameter->is_materialized() || rests_on_disk(value)) {
      fail("ema: parameter ", named.name(), " has no memory, expected some");
    }
    made.push_back(zeros(value.shape(), {.dtype = state_dtype(value, f32),
                                         .device = value.device(),
                                         .sharding = value.sharding()}));
  }
  averages_ = std::move(made);
  return averages_;
}

void Ema::update() {
  if (is_applied_) fail("ema: parameters are their averages, expected their own values");
  averages();
  for (size_t i = 0; i < averages_.size(); ++i) {
    const Tensor& value = parameters_[i].parameter->value();
    if (value.sharding() == averages_[i].sharding()) continue;
    fail("ema: parameter ", parameters_[i].name(), " is laid out as ", value.sharding(),
         ", expected ", averages_[i].sharding(), ", its layout at the first update");
  }
  const NoGrad no_grad;
  for (size_t i = 0; i < averages_.size(); ++i) {
    const Tensor value = parameters_[i].parameter->value().local();
    const Tensor average = averages_[i].local();
    updates_ == 0 ? copy_(average, value)
                  : void(lerp_(average, value.to(average.dtype()), 1 - decay_));
    mark_written(averages_[i]);
  }
  ++updates_;
}

Ema::Applied::Applied(Ema& ema) : ema_(&ema) {
  if (ema.updates_ == 0) fail("ema: number of updates is 0, expected at least 1 before it applies");
  if (ema.is_applied_)
    fail("ema: parameters are their averages already, expected their own values");
  const NoGrad no_grad;
  for (const NamedParameter& named : ema.parameters_) {
    own_.push_back(clone(named.parameter->value().local()));
  }
  for (size_t i = 0; i < own_.size(); ++i) {
    const Tensor& value = ema.parameters_[i].parameter->value();
    copy_(value.local(), ema.averages_[i].local());
    mark_written(value);
  }
  ema.is_applied_ = true;
}

void Ema::Applied::end() {
  if (!ema_) return;
  const NoGrad no_grad;
  for (size_t i = 0; i < own_.size(); ++i) {
    const Tensor& value = ema_->parameters_[i].parameter->value();
    copy_(value.local(), own_[i]);
    mark_written(value);
  }
  ema_->is_applied_ = false;
  ema_ = nullptr;
}

}  // namespace weft
