// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "nn/grouped_optimizer.h"
#include "nn/parameter_memory.h"
#include "weft/error.h"
#include "weft/ops.h"
#include "weft/ops/updates.h"
#include "weft/optimizers.h"

// Adam, AdamW, Lamb and what AdamW8bit shares with them.

namespace weft {

static constexpr std::array<std::string_view, 4> kNames = {"adam", "adamw", "adamw8bit", "lamb"};

template <AdamKind kKind> static void check_family(const std::vector<AdamKindOptions<kKind>>& all) {
  using Options = AdamKindOptions<kKind>;
  const std::string_view what = kNames[static_cast<size_t>(kKind)];
  const bool is_narrow = kKind == AdamKind::adam || kKind == AdamKind::adamw;
  for (const Options& options : all) {
    check_adam(what, options);
    check_moments(what, options.moments, !is_narrow);
    if (kKind == AdamKind::adamw8bit && options.offload != Tier()) {
      fail(what, ": tier of the state is ", options.offload, ", expected device");
    }
  }
  check_equal_in_groups(what, "moments", all, &Options::moments);
  check_equal_in_groups(what, "offload", all, &Options::offload);
}

void check_all(const std::vector<AdamOptions>& all) { check_family(all); }
void check_all(const std::vector<AdamWOptions>& all) { check_family(all); }
void check_all(const std::vector<AdamW8bitOptions>& all) { check_family(all); }
void check_all(const std::vector<LambOptions>& all) { check_family(all); }

std::vector<Hyperparameter> hyperparameters(AdamOptions& options) { return adam_numbers(options); }
std::vector<Hyperparameter> hyperparameters(AdamWOptions& options) { return adam_numbers(options); }
std::vector<Hyperparameter> hyperparameters(AdamW8bitOptions& options) {
  return adam_numbers(options);
}
std::vector<Hyperparameter> hyperparameters(LambOptions& options) { return adam_numbers(options); }

template <class Self, AdamKind kKind> std::string_view AdamFamily<Self, kKind>::name() const {
  return kNames[static_cast<size_t>(kKind)];
}

template <class Self, AdamKind kKind>
AdamWStep AdamFamily<Self, kKind>::numbers_of(size_t parameter, int64_t step) const {
  const size_t group = this->group_of(parameter);
  const auto& options = this->options_[group];
  return {.learning_rate = this->learning_rate(group),
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = this->decays_[parameter] ? options.weight_decay : 0,
          .step = step};
}

template <class Self, AdamKind kKind> void AdamFamily<Self, kKind>::update(const Update& update) {
  AdamWStep numbers = numbers_of(update.parameter, update.step);
  Tensor gradient = update.gradient, scale = update.gradient_scale;
  const double added = kKind == AdamKind::adam ? std::exchange(numbers.weight_decay, 0) : 0;
  if (added != 0) {
    const Tensor one = ones({}, {.device = gradient.device()});
    gradient = clone(gradient.to(state_dtype(update.value, f32)));
    scale_(gradient, scale);
    add_scaled_(gradient, update.value, one, added);
    scale = one;
  }
  adamw_(update.value, update.state[0], update.state[1], gradient, scale, numbers, update.rates);
}

template <class Self, AdamKind kKind>
std::vector<double> AdamFamily<Self, kKind>::rates(size_t parameter, int64_t step) const {
  constexpr bool kIsRecorded = kKind == AdamKind::adam || kKind == AdamKind::adamw;
  if (!kIsRecorded) return Optimizer::rates(parameter, step);
  AdamWStep numbers = numbers_of(parameter, step);
  if (kKind == AdamKind::adam) numbers.weight_decay = 0;
  return adamw_rates(numbers);
}

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
  const Tensor& direction = part.state.back();
  AdamWStep numbers = numbers_of(part.parameter, part.step);
  numbers.learning_rate = 1;
  const double decay = std::exchange(numbers.weight_decay, 0);
  adamw_(direction, part.state[0], part.state[1], part.gradient, part.gradient_scale, numbers);
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

template class GroupedOptimizer<Adam, AdamOptions>;
template class GroupedOptimizer<AdamW, AdamWOptions>;
template class GroupedOptimizer<AdamW8bit, AdamW8bitOptions>;
template class GroupedOptimizer<Lamb, LambOptions>;
template class AdamFamily<Adam, AdamKind::adam>;
template class AdamFamily<AdamW, AdamKind::adamw>;
template class AdamFamily<AdamW8bit, AdamKind::adamw8bit>;
template class AdamFamily<Lamb, AdamKind::lamb>;

}  // namespace weft
