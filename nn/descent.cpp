// SPDX-License-Identifier: Apache-2.0
#include "weft/error.h"
#include "weft/ops/updates.h"
#include "weft/optimizers.h"

namespace weft {

static std::vector<bool> decaying(const std::vector<NamedParameter>& parameters,
                                  const DecayPredicate& decays) {
  std::vector<bool> result;
  for (const NamedParameter& named : parameters) result.push_back(!decays || decays(named));
  return result;
}

AdamW::AdamW(std::vector<NamedParameter> given, AdamWOptions options)
    : Optimizer(std::move(given), options.learning_rate),
      options_(std::move(options)),
      decays_(decaying(parameters(), options_.decays)) {
  const auto [rate, beta1, beta2, eps, decay, predicate, moments_are, offload] = options_;
  if (!(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1)) {
    fail("adamw: the betas ", beta1, " and ", beta2, " are not both in [0, 1)");
  }
  if (!(rate >= 0) || !(eps >= 0) || !(decay >= 0)) {
    fail("adamw: the learning rate ", rate, ", eps ", eps, " or weight decay ", decay,
         " is negative");
  }
  if (!is_floating(moments_are)) fail("adamw: moments of ", moments_are, "; a floating dtype");
}

AdamWStep AdamW::numbers_of(size_t parameter, int64_t step) const {
  return {.learning_rate = learning_rate(),
          .beta1 = options_.beta1,
          .beta2 = options_.beta2,
          .eps = options_.eps,
          .weight_decay = decays_[parameter] ? options_.weight_decay : 0,
          .step = step};
}

void AdamW::update(const Update& update) {
  adamw_(update.value, update.state[0], update.state[1], update.gradient, update.gradient_scale,
         numbers_of(update.parameter, update.step), update.rates);
}

std::vector<double> AdamW::rates(size_t parameter, int64_t step) const {
  return adamw_rates(numbers_of(parameter, step));
}

SGD::SGD(std::vector<NamedParameter> given, SGDOptions options)
    : Optimizer(std::move(given), options.learning_rate),
      options_(std::move(options)),
      decays_(decaying(parameters(), options_.decays)) {
  if (!(options_.learning_rate >= 0) || !(options_.momentum >= 0) ||
      !(options_.weight_decay >= 0)) {
    fail("sgd: the learning rate ", options_.learning_rate, ", momentum ", options_.momentum,
         " or weight decay ", options_.weight_decay, " is negative");
  }
}

std::vector<std::string> SGD::moments() const {
  return options_.momentum == 0 ? std::vector<std::string>{} : std::vector<std::string>{"velocity"};
}

void SGD::update(const Update& update) {
  const Tensor velocity = update.state.empty() ? Tensor() : update.state[0];
  sgd_(update.value, velocity, update.gradient, update.gradient_scale, learning_rate(),
       options_.momentum, decays_[update.parameter] ? options_.weight_decay : 0);
}

}  // namespace weft
