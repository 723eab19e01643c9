// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "nn/groups.h"
#include "nn/squares.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
#include "weft/ops/reductions.h"
#include "weft/ops/shapes.h"
#include "weft/ops/updates.h"
#include "weft/optimizers.h"

namespace weft {

Lamb::Lamb(std::vector<ParameterGroup<LambOptions>> groups)
    : Optimizer(parameters_of(groups), each(groups, &LambOptions::learning_rate)),
      options_(options_of(groups)),
      decays_(decaying(*this, options_)) {
  for (const auto& [rate, beta1, beta2, eps, decay, predicate] : options_) {
    check_adam("lamb", rate, beta1, beta2, eps, decay);
  }
}

std::vector<Hyperparameter> hyperparameters(LambOptions& options) { return adam_numbers(options); }

std::vector<Hyperparameter> Lamb::numbers(size_t group) {
  return weft::hyperparameters(options_[group]);
}

void Lamb::update(const Update& update) { update_all({&update, 1}); }

/// Returns -u of a parameter's local part and updates its moments: an AdamW step from zero.
Tensor Lamb::direction(const Update& update) const {
  const LambOptions& options = options_[group_of(update.parameter)];
  const DType dtype = update.value.dtype() == f64 ? f64 : f32;
  const Tensor direction =
      zeros(update.value.shape(), {.dtype = dtype, .device = update.value.device()});
  adamw_(direction, update.state[0], update.state[1], update.gradient, update.gradient_scale,
         {.learning_rate = 1,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = 0,
          .step = update.step});
  const double decay = decays_[update.parameter] ? options.weight_decay : 0;
  if (decay != 0) {
    add_scaled_(direction, update.value, ones({}, {.device = direction.device()}), -decay);
  }
  return direction;
}

/// Writes row `row` of [parameters, 2]: the sums of squares of a parameter and of its direction.
static void put_squares(const Tensor& squares, size_t row, const Tensor& value,
                        const Tensor& direction) {
  const auto at = static_cast<int64_t>(row);
  const Tensor both = slice(squares, 0, at, at + 1);
  copy_(slice(both, 1, 0, 1), reshape(sum_squares(value), {1, 1}));
  copy_(slice(both, 1, 1, 2), reshape(sum_squares(direction), {1, 1}));
}

/// Returns |p| / |u| of each parameter, 1 where one of them is 0.
static Tensor trust_ratios(const Tensor& squares) {
  const Tensor norms = sqrt(squares);
  const Tensor of_value = slice(norms, 1, 0, 1), of_direction = slice(norms, 1, 1, 2);
  const Tensor one = ones_like(of_value), zero = zeros_like(of_value);
  const Tensor usable = greater(minimum(of_value, of_direction), zero);
  return where(usable, of_value / where(usable, of_direction, one), one);
}

/// Returns the tensor, or a copy on `device` of one that rests on disk.
static Tensor read_to(Device device, const Tensor& tensor) {
  return rests_on_disk(tensor) ? in_memory(tensor).to(device) : tensor;
}

void Lamb::update_all(std::span<const Update> updates) {
  for (const Update& update : updates) {
    const NamedParameter& named = parameters()[update.parameter];
    const Device used = named.parameter->device();
    for (const Tensor& tensor : {update.value, update.gradient}) {
      if (tensor.device() == used || rests_on_disk(tensor)) continue;
      fail("lamb: value or gradient of parameter ", named.name(), " is on ", tensor.device(),
           ", expected ", used,
           ", where it is used, or disk; AdamW and SGD update what is on the host");
    }
  }
  Tensors values;
  for (const NamedParameter& named : parameters()) values.push_back(named.parameter->value());
  const SquaresReduction reduction("lamb", values);
  const bool exact = std::any_of(values.begin(), values.end(),
                                 [](const Tensor& value) { return value.dtype() == f64; });
  const Tensor squares =
      zeros({static_cast<int64_t>(values.size()), 2},
            {.dtype = exact ? f64 : f32, .device = parameters()[0].parameter->device()});
  Tensors directions;
  for (Update update : updates) {
    const Device used = parameters()[update.parameter].parameter->device();
    update.value = read_to(used, update.value);
    update.gradient = read_to(used, update.gradient);
    update.gradient_scale = update.gradient_scale.to(used);
    directions.push_back(direction(update));
    if (!reduction.counts_here(update.parameter)) continue;
    put_squares(squares, update.parameter, update.value, directions.back());
  }
  reduction.reduce(squares);
  const Tensor ratios = trust_ratios(squares);
  for (size_t i = 0; i < updates.size(); ++i) {
    const auto at = static_cast<int64_t>(updates[i].parameter);
    const Tensor& value = updates[i].value;
    const Tensor read = read_to(directions[i].device(), value);
    add_scaled_(read, std::exchange(directions[i], {}), slice(ratios, 0, at, at + 1),
                learning_rate(group_of(updates[i].parameter)));
    if (rests_on_disk(value)) write_to_disk(value, read);
  }
}

}  // namespace weft
