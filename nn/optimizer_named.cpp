// SPDX-License-Identifier: Apache-2.0
#include "weft/optimizer_named.h"

#include <algorithm>
#include <utility>

#include "weft/error.h"
#include "weft/muon.h"

namespace weft {

/// Makes an optimizer with the options that its kind has.
template <class Kind, class Options>
static std::unique_ptr<Optimizer> made(const char* name, std::vector<NamedParameter> parameters,
                                       const NamedOptimizerOptions& given, Options own = {}) {
  own.learning_rate = given.learning_rate;
  own.weight_decay = given.weight_decay;
  own.decays = given.decays;
  if constexpr (requires { own.momentum; }) {
    own.momentum = given.beta1.value_or(own.momentum);
  } else {
    own.beta1 = given.beta1.value_or(own.beta1);
  }
  if constexpr (requires { own.beta2; }) {
    own.beta2 = given.beta2.value_or(own.beta2);
  } else if (given.beta2) {
    fail(name, ": beta2 is ", *given.beta2, ", expected none; it has no second moment");
  }
  if constexpr (requires { own.adam_eps; }) {
    own.adam_eps = given.eps.value_or(own.adam_eps);
  } else if constexpr (requires { own.eps; }) {
    own.eps = given.eps.value_or(own.eps);
  } else if (given.eps) {
    fail(name, ": eps is ", *given.eps, ", expected none; it divides by no moment");
  }
  if constexpr (requires { own.moments; }) {
    own.moments = given.moments;
  } else if (given.moments != f32) {
    fail(name, ": dtype of moments is ", given.moments, ", expected f32");
  }
  if constexpr (requires { own.offload; }) {
    own.offload = given.offload;
  } else if (given.offload != Tier()) {
    fail(name, ": tier of the state is ", given.offload, ", expected device");
  }
  return std::make_unique<Kind>(std::move(parameters), std::move(own));
}

static constexpr const char* kOptimizers[] = {"adamw", "adam", "adamw8bit", "lion",
                                              "muon",  "sgd",  "lamb"};

std::vector<std::string> optimizer_names() {
  return {std::begin(kOptimizers), std::end(kOptimizers)};
}

std::unique_ptr<Optimizer> optimizer_named(std::string_view name, std::vector<NamedParameter> all,
                                           const NamedOptimizerOptions& o) {
  if (name == "adamw") return made<AdamW, AdamWOptions>("adamw", std::move(all), o);
  if (name == "adam") return made<Adam, AdamOptions>("adam", std::move(all), o);
  if (name == "adamw8bit") return made<AdamW8bit, AdamW8bitOptions>("adamw8bit", std::move(all), o);
  if (name == "lion") return made<Lion, LionOptions>("lion", std::move(all), o);
  if (name == "sgd") return made<SGD>("sgd", std::move(all), o, SGDOptions{.momentum = 0.9});
  if (name == "lamb") return made<Lamb, LambOptions>("lamb", std::move(all), o);
  if (name == "muon") {
    return made<Muon>("muon", std::move(all), o, MuonOptions{.rate = MuonRate::match_rms_adamw});
  }
  std::string known;
  for (const char* own : kOptimizers) known += known.empty() ? own : concat(", ", own);
  fail("optimizer: name is ", in_quotes(std::string(name)), ", expected ", known);
}

}  // namespace weft
