// SPDX-License-Identifier: Apache-2.0
#include "cli/run_description.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>

#include "cli/numbers.h"
#include "weft/checkpoint.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/run_folder.h"
#include "weft/extend/saved_model.h"
#include "weft/extend/store.h"
#include "weft/extend/token_files.h"
#include "weft/parameter_groups.h"
#include "weft/ranks.h"

namespace weft::cli {

static constexpr const char* kRounding = "results differ by rounding";

std::vector<std::string> changes_that_can_be_allowed() {
  return {"start", "data",       "seed",  "batch", "seq",   "lr",  "schedule",     "weight-decay",
          "clip",  "clip-value", "dtype", "beta1", "beta2", "eps", "balance-rate", "reproducible"};
}

NamedOptimizerOptions optimizer_options(const TrainOptions& options) {
  NamedOptimizerOptions named{.learning_rate = options.learning_rate,
                              .weight_decay = options.weight_decay,
                              .beta1 = options.beta1,
                              .beta2 = options.beta2,
                              .eps = options.eps,
                              .decays = no_decay(options.no_decay)};
  const bool has_squares =
      options.parallel.optimizer.starts_with("adam") || options.parallel.optimizer == "muon";
  if (has_squares && !named.beta2) named.beta2 = 0.95;
  return named;
}

static bool is_one_of(const std::string& schedule, std::initializer_list<const char*> names) {
  return std::ranges::find(names, schedule) != names.end();
}

static bool has_decay(const std::string& schedule) {
  return is_one_of(schedule, {"wsd", "warmup_stable_decay"});
}
static bool has_floor(const std::string& schedule) {
  return schedule.starts_with("cosine") || has_decay(schedule) ||
         is_one_of(schedule, {"linear", "polynomial"});
}

int64_t warmup_of(const TrainOptions& options) {
  if (options.schedule == "one_cycle") return 0;
  return options.warmup >= 0 ? options.warmup : std::min<int64_t>(100, options.steps / 10);
}

/// transformers' linear and polynomial schedules end at 0.
static double floor_of(const TrainOptions& options) {
  const bool ends_at_0 = is_one_of(options.schedule, {"linear", "polynomial"});
  if (!has_floor(options.schedule) || (ends_at_0 && !options.min_lr)) return 0;
  return options.min_lr.value_or(options.learning_rate / 10);
}

static int64_t decay_of(const TrainOptions& options) {
  return options.decay.value_or(std::min(options.steps / 5, options.steps - warmup_of(options)));
}

void add_schedule_flags(CLI::App& train, TrainOptions& o) {
  add_whole(train, "--warmup", o.warmup,
            "Steps in which the learning rate rises (default: a tenth of --steps, at most 100; "
            "with --resume as before)",
            0);
  add_number(train, "--min-lr", o.min_lr,
             "Learning rate at the end (default: 0 for linear and polynomial, a tenth of --lr for "
             "the cosine schedules and wsd)",
             0);
  add_whole(train, "--restarts", o.restarts, "Falls of cosine_with_restarts", 1);
  add_number(train, "--power", o.power, "Exponent of polynomial", above(0));
  add_whole(train, "--decay", o.decay,
            "Last steps, in which the rate of wsd falls (default: a fifth of --steps)", 0);
}

void check_schedule(const TrainOptions& o) {
  const auto check = [&](const char* flag, bool is_given, bool is_used, const char* users) {
    if (!is_given || is_used) return;
    fail(flag, " is given with --schedule ", o.schedule, ", expected ", users);
  };
  check("--warmup", o.warmup > 0, o.schedule != "one_cycle", "another one, which has a warm-up");
  check("--min-lr", o.min_lr.has_value(), has_floor(o.schedule),
        "linear, polynomial, wsd or one of cosine");
  check("--restarts", o.restarts > 1, o.schedule == "cosine_with_restarts", "cosine_with_restarts");
  check("--power", o.power != 1, o.schedule == "polynomial", "polynomial");
  check("--decay", o.decay.has_value(), has_decay(o.schedule), "wsd");
  if (o.min_lr && *o.min_lr > o.learning_rate) {
    fail("--min-lr is ", *o.min_lr, ", expected at most --lr, ", o.learning_rate);
  }
  if (o.decay && *o.decay > o.steps - warmup_of(o)) {
    fail("--decay is ", *o.decay, ", expected at most ", o.steps - warmup_of(o),
         ", the steps after the warm-up");
  }
}

Schedule schedule_of(const TrainOptions& options) {
  return schedule_named(options.schedule, {.peak = options.learning_rate,
                                           .warmup = warmup_of(options),
                                           // A resumed run may end within its warm-up.
                                           .total = std::max(options.steps, warmup_of(options)),
                                           .floor = floor_of(options),
                                           .from_zero = false,
                                           .restarts = options.restarts,
                                           .power = options.power,
                                           .decay = decay_of(options)});
}

std::string schedule_in_words(const TrainOptions& options) {
  std::string text = concat("schedule ", options.schedule);
  if (const int64_t warmup = warmup_of(options); warmup > 0) {
    text += concat(", ", warmup, warmup == 1 ? " step" : " steps", " of warm-up");
  }
  if (has_decay(options.schedule)) text += concat(", a fall in the last ", decay_of(options));
  if (has_floor(options.schedule)) text += concat(", down to ", floor_of(options));
  return text;
}

void take_saved_defaults(TrainOptions& o) {
  const ResumeOptions& c = o.checkpoints;
  if (c.resume.empty() || !is_directory(c.resume) || is_hugging_face(c.resume)) return;
  const std::string path = complete_checkpoint(c.resume, {}, start_of(c));
  if (path.empty()) return;
  const std::map<std::string, int64_t> numbers = checkpoint_contents(path).numbers;
  const auto saved = [&](const std::string& name) -> std::optional<int64_t> {
    const auto found = numbers.find("run/" + name);
    if (found == numbers.end()) return {};
    return found->second;
  };
  const bool has_other_schedule = saved_text("run/schedule", numbers) != o.schedule;
  const auto rate = saved("lr"), warmup = saved("warm-up"), floor = saved("min-lr"),
             decay = saved("decay");
  if (o.learning_rate == 0 && rate) o.learning_rate = std::bit_cast<double>(*rate);
  if (has_other_schedule) return;
  if (o.warmup < 0 && warmup) o.warmup = *warmup;
  if (!o.min_lr && floor && has_floor(o.schedule)) o.min_lr = std::bit_cast<double>(*floor);
  if (!o.decay && decay && has_decay(o.schedule)) o.decay = *decay;
}

static void add_schedule(const TrainOptions& options, RunDescription& run) {
  const auto add = [&](const char* name, auto value) {
    run.add({name, value, Resumed::allowed, "schedule"});
  };
  add("schedule", options.schedule);
  add("warm-up", warmup_of(options));
  if (has_floor(options.schedule)) add("min-lr", floor_of(options));
  if (has_decay(options.schedule)) add("decay", decay_of(options));
  if (options.schedule == "cosine_with_restarts") add("restarts", options.restarts);
  if (options.schedule == "polynomial") add("power", options.power);
}

RunDescription described(const TrainOptions& options, const TransformerConfig& config) {
  const ParallelOptions& parallel = options.parallel;
  const bool deterministic = options.deterministic || uses_deterministic_algorithms();
  RunDescription run;
  add_model(config, run);
  const auto allowed = [&](const char* name, auto value) {
    run.add({name, value, Resumed::allowed, name});
  };
  allowed("seed", static_cast<int64_t>(options.seed));
  allowed("batch", parallel.batch);
  allowed("seq", parallel.seq);
  allowed("lr", options.learning_rate);
  allowed("weight-decay", options.weight_decay);
  if (options.parallel.optimizer == "adamw") {
    const AdamWOptions adamw;
    allowed("beta1", options.beta1.value_or(adamw.beta1));
    allowed("beta2", optimizer_options(options).beta2.value());
    allowed("eps", options.eps.value_or(adamw.eps));
  }
  allowed("clip", options.clip);
  allowed("clip-value", options.clip_value > 0 ? concat(options.clip_value) : "");
  if (config.sigmoid_router) allowed("balance-rate", options.stated_balance_rate());
  allowed("dtype", parallel.dtype);
  allowed("reproducible", options.reproducible ? "yes" : "");
  run.add({"steps", options.steps, Resumed::noted,
           "the schedule of the learning rate changes from here on"});
  run.add({"optimizer", options.parallel.optimizer, Resumed::refused});
  const AdapterFlags& adapters = parallel.adapters;
  if (adapters.lora) {
    run.add({"qlora", int64_t{adapters.bits}, Resumed::refused});
    run.add({"lora dropout", adapters.lora->dropout, Resumed::noted,
             "other elements are dropped from here on"});
  }
  add_schedule(options, run);
  run.add({"ema", options.ema > 0 ? concat(options.ema) : "", Resumed::noted,
           "averages decay otherwise from here on"});
  run.add({"no-decay", options.no_decay, Resumed::noted, "other parameters decay from here on"});
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

std::vector<RunItem> digests_of_weights(const TrainOptions& options) {
  if (options.init.empty()) return {};
  return {{"init", weft::Digest{digest_of(files_of_weights(options.init))}}};
}

}  // namespace weft::cli
