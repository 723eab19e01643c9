// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "nn/groups.h"
#include "nn/squares.h"
#include "weft/error.h"
#include "weft/extend/disk_memory.h"
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
  check_equal_in_groups("lamb", "offload", options_, &LambOptions::offload);
  for (const auto& [rate, beta1, beta2, eps, decay, predicate, offload] : options_) {
    check_adam("lamb", rate, beta1, beta2, eps, decay);
  }
}

std::vector<Hyperparameter> hyperparameters(LambOptions& options) { return adam_numbers(options); }

std::vector<Hyperparameter> Lamb::numbers(size_t group) {
  return weft::hyperparameters(options_[group]);
}

/// Returns zeros in the layout of a value, on disk if the state rests there, else where the
/// parameter is used.
Tensor Lamb::new_direction(const Update& update) {
  const auto dtype_of = [](const Tensor& value) { return value.dtype() == f64 ? f64 : f32; };
  const DType dtype = dtype_of(update.value);
  const Shape& shape = update.value.shape();
  if (!offload().is_disk()) {
    return zeros(shape,
                 {.dtype = dtype, .device = parameters()[update.parameter].parameter->device()});
  }
  if (!directions_) {
    std::vector<DiskMemory::Array> arrays;
    for (const NamedParameter& named : parameters()) {
      const Tensor& value = named.parameter->value();
      arrays.push_back(
          {concat("direction of parameter ", named.name()),
           value.box().shape.product() * static_cast<int64_t>(size_of(dtype_of(value)))});
    }
    directions_ =
        DiskMemory::make(offload().directory(), std::move(arrays), DiskPath::cached_if_it_fits);
  }
  const auto element = static_cast<int64_t>(size_of(dtype));
  return tensor_in(directions_->storage(), directions_->offset(update.parameter) / element, shape,
                   dtype);
}

/// Updates the moments and makes the direction, the last of the state and zero, that of -u: an
/// AdamW step from zero.
void Lamb::update(const Update& part) {
  const LambOptions& options = options_[group_of(part.parameter)];
  const Tensor& direction = part.state.back();
  adamw_(direction, part.state[0], part.state[1], part.gradient, part.gradient_scale,
         {.learning_rate = 1,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = 0,
          .step = part.step});
  const double decay = decays_[part.parameter] ? options.weight_decay : 0;
  if (decay == 0) return;
  add_scaled_(direction, part.value, ones({}, {.device = direction.device()}), -decay);
}

/// Adds to row `parameter` of [parameters, 2] the sums of squares of a value and its direction. In
/// the same pieces for all tiers, so that the bits are equal.
void Lamb::add_squares(const Update& part, const Tensor& squares) const {
  const auto row = static_cast<int64_t>(part.parameter);
  const int64_t elements = part.value.numel();
  for (const auto& [column, tensor] : {std::pair{0, part.value}, {1, part.state.back()}}) {
    const Tensor at = slice(slice(squares, 0, row, row + 1), 1, column, column + 1);
    const Tensor flat = reshape(tensor, {elements});
    for (int64_t begin = 0; begin < elements; begin += kPart) {
      const Tensor sum = sum_squares(slice(flat, 0, begin, std::min(begin + kPart, elements)));
      copy_(at, at + reshape(sum, {1, 1}).to(at.device()));
    }
  }
}

/// Returns |p| / |u| of each parameter, 1 where one of them is 0.
static Tensor trust_ratios(const Tensor& squares) {
  const Tensor norms = sqrt(squares);
  const Tensor of_value = slice(norms, 1, 0, 1), of_direction = slice(norms, 1, 1, 2);
  const Tensor one = ones_like(of_value), zero = zeros_like(of_value);
  const Tensor usable = greater(minimum(of_value, of_direction), zero);
  return where(usable, of_value / where(usable, of_direction, one), one);
}

void Lamb::update_all(std::span<const Update> updates) {
  Tensors values;
  for (const NamedParameter& named : parameters()) values.push_back(named.parameter->value());
  const SquaresReduction reduction("lamb", values);
  const bool exact = std::any_of(values.begin(), values.end(),
                                 [](const Tensor& value) { return value.dtype() == f64; });
  const Tensor squares =
      zeros({static_cast<int64_t>(values.size()), 2},
            {.dtype = exact ? f64 : f32, .device = parameters()[0].parameter->device()});
  if (directions_) directions_->clear();
  std::vector<Update> moves, steps;
  for (const Update& update : updates) {
    const Tensor direction = new_direction(update);
    moves.push_back(update);
    moves.back().state.push_back(direction);
    steps.push_back(update);
    steps.back().gradient = direction;
    steps.back().state.clear();
  }
  update_parts(moves, false, [&](const Update& part) {
    update(part);
    if (reduction.counts_here(part.parameter)) add_squares(part, squares);
  });
  reduction.reduce(squares);
  const Tensor ratios = trust_ratios(squares);
  update_parts(steps, true, [&](const Update& part) {
    const auto at = static_cast<int64_t>(part.parameter);
    const Tensor ratio = slice(ratios, 0, at, at + 1).to(part.value.device());
    add_scaled_(part.value, part.gradient, ratio, learning_rate(group_of(part.parameter)));
  });
}

}  // namespace weft
