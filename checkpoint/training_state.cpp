// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <iterator>

#include "checkpoint/keys.h"
#include "weft/error.h"
#include "weft/state_dict.h"

namespace weft {

static std::string first_keys(const std::vector<std::string>& keys) {
  constexpr size_t most = 3;
  std::string text;
  for (size_t i = 0; i < std::min(most, keys.size()); ++i) {
    text += (i ? ", " : "") + in_quotes(keys[i]);
  }
  if (keys.size() > most) text += concat(" and ", keys.size() - most, " more");
  return text;
}

void check_no_keys_skipped(const char* what, const std::string& source,
                           const SkippedKeys& skipped) {
  if (skipped.empty()) return;
  const std::string missing = first_keys(skipped.missing);
  const std::string unexpected = first_keys(skipped.unexpected);
  if (unexpected.empty()) fail(what, ": ", source, ": it lacks ", missing);
  if (missing.empty())
    fail(what, ": ", source, ": it holds ", unexpected, ", which nothing expects");
  fail(what, ": ", source, ": it lacks ", missing, " and holds ", unexpected,
       ", which nothing expects");
}

void TrainingState::add(const std::string& name, Part part) {
  if (name.empty() || name.find('/') != name.npos) {
    fail("training state: name of a part is ", in_quotes(name),
         ", expected a non-empty one without a slash");
  }
  if (!parts_.emplace(name, std::move(part)).second) {
    fail("training state: part ", in_quotes(name), " exists already, expected another name");
  }
}

void TrainingState::add(const std::string& name, Module& module) {
  add(name, Part{.give = [&module] { return weft::state_dict(module); }, .take = {}});
}

void TrainingState::add(const std::string& name, const Tensor& tensor) {
  add(name, Part{.give = [tensor] { return StateDict{{{"value", tensor}}, {}}; }, .take = {}});
}

void TrainingState::add(const std::string& name, int64_t& number) {
  add(name, Part{.give =
                     [&number] {
                       return StateDict{{}, {{"value", number}}};
                     },
                 .take = [&number](const auto& numbers) { number = numbers.at("value"); }});
}

void TrainingState::add(const std::string& name, RandomState& random) {
  const auto give = [&random] {
    return StateDict{{},
                     {{"seed", std::bit_cast<int64_t>(random.seed)},
                      {"stream", std::bit_cast<int64_t>(random.stream)}}};
  };
  add(name, Part{.give = give, .take = [&random](const auto& numbers) {
                   random = {std::bit_cast<uint64_t>(numbers.at("seed")),
                             std::bit_cast<uint64_t>(numbers.at("stream"))};
                 }});
}

StateDict TrainingState::state_dict() const {
  StateDict all;
  for (const auto& [name, part] : parts_) {
    const StateDict own = part.give();
    for (const auto& [key, tensor] : own.tensors) {
      all.tensors.emplace(concat(name, '/', key), tensor);
    }
    for (const auto& [key, number] : own.numbers) {
      all.numbers.emplace(concat(name, '/', key), number);
    }
  }
  return all;
}

StateDict TrainingState::state_dict_with(const std::map<std::string, int64_t>& numbers) const {
  StateDict all = state_dict();
  for (const auto& [name, part] : parts_) {
    if (!part.takes_any_numbers) continue;
    const auto is_own = [&](const auto& entry) { return entry.first.starts_with(name + '/'); };
    std::erase_if(all.numbers, is_own);
    std::ranges::copy_if(numbers, std::inserter(all.numbers, all.numbers.end()), is_own);
  }
  return all;
}

void TrainingState::take_numbers(const std::map<std::string, int64_t>& numbers) const {
  SkippedKeys skipped;
  add_unmatched_keys(state_dict_with(numbers).numbers, numbers, skipped);
  check_no_keys_skipped("training state", "what is loaded", skipped);
  for (const auto& [name, part] : parts_) {
    std::map<std::string, int64_t> own;
    const std::string prefix = concat(name, '/');
    for (const auto& [key, number] : numbers) {
      if (key.starts_with(prefix)) own.emplace(key.substr(prefix.size()), number);
    }
    if (part.take) part.take(own);
  }
}

}  // namespace weft
