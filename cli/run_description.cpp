// SPDX-License-Identifier: Apache-2.0
#include "cli/run_description.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cinttypes>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <sstream>
#include <type_traits>

#include "cli/weights.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/extend/hash.h"
#include "weft/extend/saved_model.h"
#include "weft/ranks.h"
#include "weft/safetensors.h"

namespace weft::cli {

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

/// Returns the value of an item in a checkpoint, in words; "" when the checkpoint lacks it.
static std::string saved_words(const RunItem& item, const SavedNumbers& saved) {
  const std::string key = key_of(item);
  return std::visit(
      [&]<class T>(const T&) -> std::string {
        if constexpr (std::is_same_v<T, std::string>) {
          return saved_text(key, saved);
        } else {
          return saved.contains(key) ? in_words(std::bit_cast<T>(saved.at(key))) : "";
        }
      },
      item.value);
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
          } else {
            numbers.emplace(key_of(item), std::bit_cast<int64_t>(value));
          }
        },
        item.value);
  }
  return numbers;
}

void RunDescription::check_resumed(const std::string& path, const SavedNumbers& saved,
                                   std::span<const std::string> allowed, bool prints) const {
  std::vector<std::string> refused, flags, fixed, noted, missing;
  for (const RunItem& item : items_) {
    if (item.resumed == Resumed::not_saved) continue;
    const std::string before = saved_words(item, saved), now = in_words(item);
    const bool is_choices = item.name == concat(kModel, kChoices);
    if (before == now || (is_choices && are_same_choices(before, now))) continue;
    if (before.empty()) {
      missing.push_back(item.name);
      continue;
    }
    if (is_choices && !fixed.empty()) continue;
    const std::string difference = concat(item.name, " is ", now, ", the checkpoint's is ", before);
    if (item.resumed == Resumed::refused) {
      fixed.push_back(difference);
    } else if (item.resumed == Resumed::noted) {
      noted.push_back(concat(difference, " (", item.note, ')'));
    } else if (std::ranges::find(allowed, item.note) != allowed.end()) {
      noted.push_back(concat(difference, " (allowed by --allow-change)"));
    } else {
      refused.push_back(difference);
      if (std::ranges::find(flags, item.note) == flags.end()) flags.push_back(item.note);
    }
  }
  if (!fixed.empty()) fail("--resume: ", listed(fixed, {}, "; "), ", expected equal values");
  if (!refused.empty()) {
    fail("--resume: ", listed(refused, {}, "; "), ", expected equal values; --allow-change ",
         listed(flags, {}, ","), " continues with the new value", refused.size() == 1 ? "" : "s");
  }
  if (!prints) return;
  for (const std::string& note : noted) warn("note: ", note);
  if (missing.empty()) return;
  warn("warning: ", path,
       " does not hold these settings of its run, which are not compared: ", listed(missing));
}

static constexpr const char* kRounding = "results differ by rounding";

std::vector<std::string> changes_that_can_be_allowed() {
  return {"start", "data",  "seed",  "batch", "seq", "lr",          "weight-decay",
          "clip",  "dtype", "beta1", "beta2", "eps", "balance-rate"};
}

AdamWOptions adamw_options(const TrainOptions& options) {
  return {
      .learning_rate = options.learning_rate, .beta2 = 0.95, .weight_decay = options.weight_decay};
}

WarmupCosine schedule_of(const TrainOptions& options) {
  const int64_t warmup = std::min<int64_t>(100, options.steps / 10);
  return {options.learning_rate, warmup, options.steps, options.learning_rate / 10};
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

RunDescription described(const TrainOptions& options, const TransformerConfig& config,
                         const TokenStream& data) {
  const ParallelOptions& parallel = options.parallel;
  const AdamWOptions adamw = adamw_options(options);
  const WarmupCosine schedule = schedule_of(options);
  const bool deterministic = options.deterministic || uses_deterministic_algorithms();
  RunDescription run;
  add_model(config, run);
  const auto allowed = [&](const char* name, auto value) {
    run.add({name, value, Resumed::allowed, name});
  };
  allowed("seed", static_cast<int64_t>(options.seed));
  allowed("batch", parallel.batch);
  allowed("seq", parallel.seq);
  allowed("lr", adamw.learning_rate);
  allowed("weight-decay", adamw.weight_decay);
  allowed("beta1", adamw.beta1);
  allowed("beta2", adamw.beta2);
  allowed("eps", adamw.eps);
  allowed("clip", options.clip);
  if (config.sigmoid_router) allowed("balance-rate", options.stated_balance_rate());
  allowed("dtype", parallel.dtype);
  run.add({"tokens", data.size(), Resumed::allowed, "data"});
  run.add({"steps", options.steps, Resumed::noted,
           "the schedule of the learning rate changes from here on"});
  run.add({"warm-up", schedule.warmup});
  const auto rounds = [&](const char* name, auto value) {
    run.add({name, value, Resumed::noted, kRounding});
  };
  rounds("mesh", parallel.mesh);
  rounds("strategy", parallel.strategy);
  rounds("accumulate", parallel.accumulate);
  rounds("gather-dtype", parallel.gather_dtype);
  rounds("gradient-dtype", parallel.gradient_dtype);
  rounds("float8", int64_t{parallel.float8});
  rounds("sequence-parallel", int64_t{parallel.sequence_parallel.value_or(false)});
  rounds("async-tp", int64_t{parallel.async_tp});
  if (config.experts > 0) rounds("expert-chunks", parallel.expert_chunks);
  rounds("device", options.device);
  rounds("deterministic", int64_t{deterministic});
  rounds("build", build_in_words());
  return run;
}

std::vector<RunItem> digests_of_files(const TrainOptions& options, const TokenStream& data) {
  const auto& paths = data.paths();
  std::vector<RunItem> items = {{"data", Digest{digest_of(paths)}, Resumed::allowed, "data"},
                                {"data names", Digest{digest_of_names(paths, options.data)},
                                 Resumed::noted, "the contents are the same", true}};
  if (options.init.empty()) return items;
  items.push_back({"init", Digest{digest_of(files_of_weights(options.init))}});
  return items;
}

}  // namespace weft::cli
