// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "nn/grouped_optimizer.h"
#include "weft/error.h"
#include "weft/ops.h"
#include "weft/ops/updates.h"
#include "weft/optimizers.h"

namespace weft {

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

template class GroupedOptimizer<Lion, LionOptions>;
template class GroupedOptimizer<SGD, SGDOptions>;

}  // namespace weft
