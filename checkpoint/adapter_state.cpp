// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>

#include "weft/error.h"
#include "weft/extend/saved_model.h"
#include "weft/peft.h"

namespace weft {

// A checkpoint of adapters has their tensors and, as numbers "adapters.<option>", what determines
// their scale.
static constexpr const char* kRank = "adapters.rank";
static constexpr const char* kAlpha = "adapters.alpha";
static constexpr const char* kDropout = "adapters.dropout";
static constexpr const char* kRslora = "adapters.rslora";

StateDict adapter_state_dict(const Module& model) {
  const std::vector<AdaptedLinear> adapted = adapted_linears(const_cast<Module&>(model));
  if (adapted.empty()) fail("adapter_state_dict: number of adapters is 0, expected at least 1");
  StateDict state;
  const auto add = [&](const std::string& name, const Module& part) {
    const Parameter& parameter = *part.own_parameters()[0].second;
    if (!parameter.is_materialized()) {
      fail("adapter_state_dict: parameter ", in_quotes(name),
           " has no memory, expected some; call materialize first");
    }
    state.tensors.emplace(name, parameter.value());
  };
  for (const AdaptedLinear& one : adapted) {
    add(one.path + ".lora_A.weight", *one.a);
    add(one.path + ".lora_B.weight", *one.b);
  }
  const AdapterOptions& options = adapted[0].a->options();
  state.numbers = {{kRank, options.rank},
                   {kAlpha, std::bit_cast<int64_t>(options.alpha)},
                   {kDropout, std::bit_cast<int64_t>(options.dropout)},
                   {kRslora, options.rslora ? 1 : 0}};
  return state;
}

void TrainingState::add_adapters(const std::string& name, Module& module) {
  const auto take = [&module](const std::map<std::string, int64_t>& saved) {
    for (const auto& [key, number] : adapter_state_dict(module).numbers) {
      if (key == kDropout || saved.at(key) == number) continue;
      const auto text = [&](int64_t value) {
        return key == kAlpha ? concat(std::bit_cast<double>(value)) : concat(value);
      };
      fail("training state: ", key, " is ", text(saved.at(key)), ", expected ", text(number),
           ", that of the model");
    }
  };
  add(name, Part{.give = [&module] { return adapter_state_dict(module); }, .take = take});
  modules_.emplace(name, &module);
}

std::optional<AdapterOptions> saved_adapters(const CheckpointContents& contents,
                                             const std::string& prefix) {
  const auto number = [&](const char* key) {
    const auto found = contents.numbers.find(prefix + key);
    return found == contents.numbers.end() ? std::nullopt : std::optional(found->second);
  };
  if (!number(kRank)) return {};
  AdapterOptions options{.rank = *number(kRank),
                         .alpha = std::bit_cast<double>(number(kAlpha).value_or(0)),
                         .dropout = std::bit_cast<double>(number(kDropout).value_or(0)),
                         .rslora = number(kRslora).value_or(0) != 0,
                         .targets = {}};
  for (const auto& [name, entry] : contents.tensors) {
    static const std::string kEnd = ".lora_A.weight";
    if (!name.starts_with(prefix) || !name.ends_with(kEnd)) continue;
    options.targets.push_back(
        name.substr(prefix.size(), name.size() - prefix.size() - kEnd.size()));
  }
  return options;
}

}  // namespace weft
