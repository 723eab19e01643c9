// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "nn/grouped_optimizer.h"
#include "nn/parameter_memory.h"
#include "weft/error.h"
#include "weft/ops.h"
#include "weft/optimizers.h"

namespace weft {

void check_all(const std::vector<AdamWOptions>& all) {
  for (const AdamWOptions& o : all) {
    check_adam("adamw", o);
    if (!is_floating(o.moments))
      fail("adamw: dtype of moments is ", o.moments, ", expected a floating one");
  }
  check_equal_in_groups("adamw", "moments", all, &AdamWOptions::moments);
  check_equal_in_groups("adamw", "offload", all, &AdamWOptions::offload);
}

std::vector<Hyperparameter> hyperparameters(AdamWOptions& options) { return adam_numbers(options); }

AdamWStep AdamW::numbers_of(size_t parameter, int64_t step) const {
  const AdamWOptions& options = options_[group_of(parameter)];
  return {.learning_rate = learning_rate(group_of(parameter)),
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = decays_[parameter] ? options.weight_decay : 0,
          .step = step};
}

void AdamW::update(const Update& update) {
  adamw_(update.value, update.state[0], update.state[1], update.gradient, update.gradient_scale,
         numbers_of(update.parameter, update.step), update.rates);
}

std::vector<double> AdamW::rates(size_t parameter, int64_t step) const {
  return adamw_rates(numbers_of(parameter, step));
}

void check_all(const std::vector<SGDOptions>& all) {
  for (const SGDOptions& options : all) {
    if (!(options.learning_rate >= 0) || !(options.momentum >= 0) || !(options.weight_decay >= 0)) {
      fail("sgd: learning rate, momentum and weight decay are ", options.learning_rate, ", ",
           options.momentum, " and ", options.weight_decay, ", expected each at least 0");
    }
    if (options.nesterov && options.momentum == 0) {
      fail("sgd: nesterov with momentum 0, expected a momentum above 0");
    }
  }
  check_equal_in_groups("sgd", "offload", all, &SGDOptions::offload);
}

std::vector<Hyperparameter> hyperparameters(SGDOptions& options) {
  return {{"lr", &options.learning_rate},
          {"momentum", &options.momentum},
          {"weight_decay", &options.weight_decay},
          {"nesterov", &options.nesterov}};
}

std::vector<std::string> SGD::moments() const {
  const auto has_momentum = [](const SGDOptions& options) { return options.momentum != 0; };
  if (std::ranges::none_of(options_, has_momentum)) return {};
  return {"velocity"};
}

void SGD::update(const Update& update) {
  const SGDOptions& options = options_[group_of(update.parameter)];
  const bool has_velocity = !update.state.empty() && options.momentum != 0;
  sgd_(update.value, has_velocity ? update.state[0] : Tensor(), update.gradient,
       update.gradient_scale, learning_rate(group_of(update.parameter)), options.momentum,
       decays_[update.parameter] ? options.weight_decay : 0, options.nesterov && has_velocity);
}

void check_all(const std::vector<LambOptions>& all) {
  check_equal_in_groups("lamb", "offload", all, &LambOptions::offload);
  for (const LambOptions& options : all) check_adam("lamb", options);
}

std::vector<Hyperparameter> hyperparameters(LambOptions& options) { return adam_numbers(options); }

/// Returns zeros in the layout of a value, on disk if the state rests there, else where the
/// parameter is used.
Tensor Lamb::new_direction(const Update& update) {
  if (offload().is_disk()) {
    if (!directions_ || directions_->tensors.size() < parameters().size()) {
      directions_ =
          std::make_shared<ParameterState>(new_state(offload(), "direction", parameters(), f32));
    }
    return directions_->tensors[update.parameter].local();
  }
  return zeros(update.value.shape(),
               {.dtype = state_dtype(update.value, f32),
                .device = parameters()[update.parameter].parameter->device()});
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
  uint64_t model = 0;
  for (const NamedParameter& named : parameters()) {
    values.push_back(named.parameter->value());
    model = least_model(model, *named.parameter);
  }
  const SquaresReduction reduction("lamb", values, model);
  const bool exact = std::ranges::find(values, f64, &Tensor::dtype) != values.end();
  const Tensor squares =
      zeros({static_cast<int64_t>(values.size()), 2},
            {.dtype = exact ? f64 : f32, .device = parameters()[0].parameter->device()});
  if (directions_) directions_->file->clear();
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

double WarmupCosine::operator()(int64_t step) const {
  if (step < 0) fail("warm-up and cosine: step must be at least 0, got ", step);
  if (warmup < 0 || warmup > total) {
    fail("warm-up and cosine: warmup is ", warmup, ", expected 0 to ", total, " steps");
  }
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (step >= total) return floor;
  const double way = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
  return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * way));
}

template class GroupedOptimizer<AdamW, AdamWOptions>;
template class GroupedOptimizer<SGD, SGDOptions>;
template class GroupedOptimizer<Lamb, LambOptions>;

}  // namespace weft
