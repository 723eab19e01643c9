// SPDX-License-Identifier: Apache-2.0
#include "weft/adam.h"

#include "nn/grouped_optimizer.h"
#include "nn/parameter_memory.h"
#include "weft/lion.h"
#include "weft/ops.h"
#include "weft/ops/updates.h"

// Adam and Lion.

namespace weft {

static void check_moments(const char* what, DType moments) {
  if (!is_floating(moments) || is_float8(moments))
    fail(what, ": dtype of moments is ", moments, ", expected f32, bf16, f16 or f64");
}

void check_all(const std::vector<AdamOptions>& all) {
  for (const AdamOptions& options : all) {
    check_adam("adam", options);
    check_moments("adam", options.moments);
  }
  check_equal_in_groups("adam", "moments", all, &AdamOptions::moments);
  check_equal_in_groups("adam", "offload", all, &AdamOptions::offload);
}

std::vector<Hyperparameter> hyperparameters(AdamOptions& options) { return adam_numbers(options); }

AdamWStep Adam::numbers_of(size_t parameter, int64_t step) const {
  const AdamOptions& options = options_[group_of(parameter)];
  return {.learning_rate = learning_rate(group_of(parameter)),
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = 0,
          .step = step};
}

void Adam::update(const Update& update) {
  const double decay =
      decays_[update.parameter] ? options_[group_of(update.parameter)].weight_decay : 0;
  Tensor gradient = update.gradient, scale = update.gradient_scale;
  if (decay != 0) {
    const Tensor one = ones({}, {.device = gradient.device()});
    gradient = clone(gradient.to(state_dtype(update.value, f32)));
    scale_(gradient, scale);
    add_scaled_(gradient, update.value, one, decay);
    scale = one;
  }
  adamw_(update.value, update.state[0], update.state[1], gradient, scale,
         numbers_of(update.parameter, update.step), update.rates);
}

std::vector<double> Adam::rates(size_t parameter, int64_t step) const {
  return adamw_rates(numbers_of(parameter, step));
}

void check_all(const std::vector<LionOptions>& all) {
  for (const LionOptions& o : all) {
    if (!(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1)) {
      fail("lion: betas are ", o.beta1, " and ", o.beta2, ", expected both in [0, 1)");
    }
    if (!(o.learning_rate >= 0) || !(o.weight_decay >= 0)) {
      fail("lion: learning rate and weight decay are ", o.learning_rate, " and ", o.weight_decay,
           ", expected each at least 0");
    }
    check_moments("lion", o.moments);
  }
  check_equal_in_groups("lion", "moments", all, &LionOptions::moments);
  check_equal_in_groups("lion", "offload", all, &LionOptions::offload);
}

std::vector<Hyperparameter> hyperparameters(LionOptions& options) {
  return {{"lr", &options.learning_rate},
          {"beta1", &options.beta1},
          {"beta2", &options.beta2},
          {"weight_decay", &options.weight_decay}};
}

void Lion::update(const Update& update) {
  const LionOptions& options = options_[group_of(update.parameter)];
  lion_(update.value, update.state[0], update.gradient, update.gradient_scale,
        {.learning_rate = learning_rate(group_of(update.parameter)),
         .beta1 = options.beta1,
         .beta2 = options.beta2,
         .weight_decay = decays_[update.parameter] ? options.weight_decay : 0});
}

template class GroupedOptimizer<Adam, AdamOptions>;
template class GroupedOptimizer<Lion, LionOptions>;

}  // namespace weft
