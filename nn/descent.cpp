// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "nn/groups.h"
#include "weft/error.h"
#include "weft/ops/updates.h"
#include "weft/optimizers.h"

namespace weft {

AdamW::AdamW(std::vector<ParameterGroup<AdamWOptions>> groups)
    : Optimizer(parameters_of(groups), each(groups, &AdamWOptions::learning_rate)),
      options_(options_of(groups)),
      decays_(decaying(*this, options_)) {
  for (const auto& [rate, beta1, beta2, eps, decay, predicate, moments_are, offload] : options_) {
    check_adam("adamw", rate, beta1, beta2, eps, decay);
    if (!is_floating(moments_are))
      fail("adamw: dtype of moments is ", moments_are, ", expected a floating one");
  }
  check_equal_in_groups("adamw", "moments", options_, &AdamWOptions::moments);
  check_equal_in_groups("adamw", "offload", options_, &AdamWOptions::offload);
}

std::vector<Hyperparameter> hyperparameters(AdamWOptions& options) { return adam_numbers(options); }

std::vector<Hyperparameter> AdamW::numbers(size_t group) {
  return weft::hyperparameters(options_[group]);
}

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

SGD::SGD(std::vector<ParameterGroup<SGDOptions>> groups)
    : Optimizer(parameters_of(groups), each(groups, &SGDOptions::learning_rate)),
      options_(options_of(groups)),
      decays_(decaying(*this, options_)) {
  for (const SGDOptions& options : options_) {
    if (!(options.learning_rate >= 0) || !(options.momentum >= 0) || !(options.weight_decay >= 0)) {
      fail("sgd: learning rate, momentum and weight decay are ", options.learning_rate, ", ",
           options.momentum, " and ", options.weight_decay, ", expected each at least 0");
    }
    if (options.nesterov && options.momentum == 0) {
      fail("sgd: nesterov with momentum 0, expected a momentum above 0");
    }
  }
  check_equal_in_groups("sgd", "offload", options_, &SGDOptions::offload);
}

std::vector<Hyperparameter> hyperparameters(SGDOptions& options) {
  return {{"lr", &options.learning_rate},
          {"momentum", &options.momentum},
          {"weight_decay", &options.weight_decay},
          {"nesterov", &options.nesterov}};
}

std::vector<Hyperparameter> SGD::numbers(size_t group) {
  return weft::hyperparameters(options_[group]);
}

std::vector<std::string> SGD::moments() const {
  const bool any = std::any_of(options_.begin(), options_.end(),
                               [](const SGDOptions& options) { return options.momentum != 0; });
  return any ? std::vector<std::string>{"velocity"} : std::vector<std::string>{};
}

void SGD::update(const Update& update) {
  const SGDOptions& options = options_[group_of(update.parameter)];
  const bool has_velocity = !update.state.empty() && options.momentum != 0;
  sgd_(update.value, has_velocity ? update.state[0] : Tensor(), update.gradient,
       update.gradient_scale, learning_rate(group_of(update.parameter)), options.momentum,
       decays_[update.parameter] ? options.weight_decay : 0, options.nesterov && has_velocity);
}

}  // namespace weft
