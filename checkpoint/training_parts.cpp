// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "weft/ema.h"
#include "weft/loss_scaler.h"
#include "weft/state_dict.h"

// States of what a training loop has besides a model and an optimizer.

namespace weft {

StateDict state_dict(Ema& ema) {
  StateDict state;
  const Tensors& averages = ema.averages();
  for (size_t i = 0; i < averages.size(); ++i) {
    state.tensors.emplace(ema.parameters()[i].name(), averages[i]);
  }
  state.numbers = {{"decay", std::bit_cast<int64_t>(ema.decay())}, {"updates", ema.updates()}};
  return state;
}

static void take_numbers_of(Ema& ema, const std::map<std::string, int64_t>& numbers) {
  ema.set_decay(std::bit_cast<double>(numbers.at("decay")));
  ema.set_updates(numbers.at("updates"));
}

void load_state_dict(Ema& ema, const StateDict& from) {
  load_tensors(state_dict(ema), from);
  take_numbers_of(ema, from.numbers);
}

void TrainingState::add(const std::string& name, Ema& ema) {
  add(name, Part{[&ema] { return weft::state_dict(ema); },
                 [&ema](const auto& numbers) { take_numbers_of(ema, numbers); }});
}

void TrainingState::add(const std::string& name, LossScaler& scaler) {
  const auto give = [&scaler] {
    return StateDict{{},
                     {{"scale", std::bit_cast<int64_t>(scaler.scale())},
                      {"growth_tracker", scaler.growth_tracker()}}};
  };
  add(name, Part{give, [&scaler](const auto& numbers) {
                   scaler.set(std::bit_cast<double>(numbers.at("scale")),
                              numbers.at("growth_tracker"));
                 }});
}

void TrainingState::add(const std::string& name, NonFinitePolicy& policy) {
  const auto give = [&policy] {
    return StateDict{{}, {{"skipped", policy.skipped()}, {"in_a_row", policy.in_a_row()}}};
  };
  add(name, Part{give, [&policy](const auto& numbers) {
                   policy.set(numbers.at("skipped"), numbers.at("in_a_row"));
                 }});
}

}  // namespace weft
