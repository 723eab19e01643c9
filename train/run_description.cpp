// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/run_description.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cinttypes>
#include <cstddef>
#include <optional>
#include <sstream>
#include <type_traits>

#include "train/option_names.h"
#include "weft/error.h"
#include "weft/extend/saved_model.h"
#include "weft/ranks.h"

namespace weft {

using SavedNumbers = std::map<std::string, int64_t>;

static constexpr std::string_view kModel = "model.";

/// Doubles in the shortest text that gives the same again, digests in hexadecimal digits.
static std::string in_words(double value) {
  char text[32];
  return {text, std::to_chars(text, std::end(text), value, std::chars_format::general).ptr};
}
static std::string in_words(int64_t value) { return std::to_string(value); }
static std::string in_words(Digest value) { return formatted("%" PRIx64, value); }
static std::string in_words(const std::string& value) { return value; }

static std::string in_words(const RunItem& item) {
  return std::visit([](const auto& value) { return in_words(value); }, item.value);
}

static std::string key_of(const RunItem& item) {
  const bool of_model = item.name.starts_with(kModel);
  return of_model ? concat("config/", item.name.substr(kModel.size())) : concat("run/", item.name);
}

/// The name of the item that holds all choices of a config, and no sizes that may change;
/// `saved_config` reads it.
static constexpr const char* kChoices = "config";

/// Returns the value of an item in a checkpoint, in words; nothing when the checkpoint lacks it.
static std::optional<std::string> saved_words(const RunItem& item, const SavedNumbers& saved) {
  const std::string key = key_of(item);
  return std::visit(
      [&]<class T>(const T&) -> std::optional<std::string> {
        if constexpr (std::is_same_v<T, std::string>) {
          if (saved.contains(key + ":0")) return saved_text(key, saved);
        } else {
          if (saved.contains(key)) return in_words(std::bit_cast<T>(saved.at(key)));
        }
        return {};
      },
      item.value);
}

void RunDescription::add(RunItem item) {
  if (std::ranges::find(items_, item.name, &RunItem::name) != items_.end()) return;
  items_.push_back(std::move(item));
}

void RunDescription::check_ranks(const Communicator& world) {
  if (launched_ranks() == 1) return;
  std::string own;
  for (const RunItem& item : items_) own += concat(item.name, '\n', in_words(item), '\n');
  // Processes of one build with equal flags have equal names.
  std::istringstream of_first(world.broadcast(own, 0));
  std::string mistake, name, value;
  for (RunItem& item : items_) {
    std::getline(std::getline(of_first, name), value);
    if (name == item.name && item.is_of_first) item.value = Digest{std::stoull(value, nullptr, 16)};
    if (name == item.name && value == in_words(item)) continue;
    mistake = concat("train: rank ", world.rank(), " has ", item.name, ' ', in_words(item),
                     ", rank 0 has ", value, "; all ranks must have the same");
    break;
  }
  fail_on_all_ranks(world, mistake);
}

SavedNumbers RunDescription::numbers() const {
  SavedNumbers numbers;
  for (const RunItem& item : items_) {
    if (item.resumed == Resumed::not_saved) continue;
    std::visit(
        [&]<class T>(const T& value) {
          if constexpr (std::is_same_v<T, std::string>) {
            save_text(key_of(item), value, numbers);
            // An empty text is a value too.
            if (value.empty()) numbers.emplace(key_of(item) + ":0", 0);
          } else {
            numbers.emplace(key_of(item), std::bit_cast<int64_t>(value));
          }
        },
        item.value);
  }
  return numbers;
}

void RunDescription::check_resumed(const std::string& path, const SavedNumbers& saved,
                                   std::span<const std::string> allowed, bool warns,
                                   bool are_flags) const {
  const std::string resume = start_of_error("resume", are_flags);
  const std::string allow = option_name("allow_change", are_flags);
  std::vector<std::string> refused, flags, fixed, noted, missing;
  for (const RunItem& item : items_) {
    if (item.resumed == Resumed::not_saved) continue;
    const std::optional<std::string> before = saved_words(item, saved);
    const std::string now = in_words(item);
    const bool is_choices = item.name == concat(kModel, kChoices);
    if (before == now || (before && is_choices && are_same_choices(*before, now))) continue;
    if (!before) {
      if (!now.empty()) missing.push_back(item.name);
      continue;
    }
    if (is_choices && !fixed.empty()) continue;
    const auto shown = [](const std::string& text) { return text.empty() ? "empty" : text; };
    const std::string difference =
        concat(item.name, " is ", shown(now), ", the checkpoint's is ", shown(*before));
    if (item.resumed == Resumed::refused) {
      fixed.push_back(difference);
    } else if (item.resumed == Resumed::noted) {
      noted.push_back(concat(difference, " (", item.note, ')'));
    } else if (std::ranges::find(allowed, item.note) != allowed.end()) {
      noted.push_back(concat(difference, " (allowed by ", allow, ')'));
    } else {
      refused.push_back(difference);
      if (std::ranges::find(flags, item.note) == flags.end()) flags.push_back(item.note);
    }
  }
  if (!fixed.empty()) fail(resume, listed(fixed, {}, "; "), ", expected equal values");
  if (!refused.empty()) {
    fail(resume, listed(refused, {}, "; "), ", expected equal values; ", allow, ' ',
         listed(flags, {}, ","), " continues with the new value", refused.size() == 1 ? "" : "s");
  }
  if (!warns) return;
  for (const std::string& note : noted) warn("note: ", note);
  if (missing.empty()) return;
  warn("warning: ", path,
       " does not hold these settings of its run, which are not compared: ", listed(missing));
}

void add_model(const TransformerConfig& config, RunDescription& run) {
  const std::string model(kModel);
  for_saved_sizes(config, [&]<class Size>(const char* name, const Size& size) {
    run.add({model + name, SavedSize<Size>{size}, Resumed::refused});
  });
  run.add({model + kChoices, saved_choices(config), Resumed::refused});
  run.add({model + "max_sequence", config.max_sequence, Resumed::noted, "it bounds rows only"});
  run.add({model + "deviation", config.deviation});
}

}  // namespace weft
