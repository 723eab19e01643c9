// SPDX-License-Identifier: Apache-2.0
#include "cli/run_description.h"

#include <algorithm>

#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/run_folder.h"
#include "weft/extend/token_files.h"
#include "weft/parameter_groups.h"
#include "weft/ranks.h"

namespace weft::cli {

static constexpr const char* kRounding = "results differ by rounding";

std::vector<std::string> changes_that_can_be_allowed() {
  return {"start", "data",  "seed",  "batch", "seq", "lr",          "weight-decay",
          "clip",  "dtype", "beta1", "beta2", "eps", "balance-rate"};
}

NamedOptimizerOptions optimizer_options(const TrainOptions& options) {
  NamedOptimizerOptions named{.learning_rate = options.learning_rate,
                              .weight_decay = options.weight_decay,
                              .decays = no_decay(options.no_decay)};
  const bool has_squares =
      options.parallel.optimizer.starts_with("adam") || options.parallel.optimizer == "muon";
  if (has_squares) named.beta2 = 0.95;
  return named;
}

int64_t warmup_of(const TrainOptions& options) {
  return options.warmup >= 0 ? options.warmup : std::min<int64_t>(100, options.steps / 10);
}

Schedule schedule_of(const TrainOptions& options) {
  return schedule_named(options.schedule, {.peak = options.learning_rate,
                                           .warmup = warmup_of(options),
                                           .total = options.steps,
                                           .floor = options.learning_rate / 10,
                                           .from_zero = false,
                                           .decay = options.steps / 5});
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
    allowed("beta1", adamw.beta1);
    allowed("beta2", optimizer_options(options).beta2.value());
    allowed("eps", adamw.eps);
  }
  allowed("clip", options.clip);
  if (config.sigmoid_router) allowed("balance-rate", options.stated_balance_rate());
  allowed("dtype", parallel.dtype);
  run.add({"steps", options.steps, Resumed::noted,
           "the schedule of the learning rate changes from here on"});
  run.add({"warm-up", warmup_of(options)});
  run.add({"optimizer", options.parallel.optimizer, Resumed::refused});
  const AdapterFlags& adapters = parallel.adapters;
  if (adapters.lora) {
    run.add({"qlora", int64_t{adapters.bits}, Resumed::refused});
    run.add({"lora dropout", adapters.lora->dropout, Resumed::noted,
             "other elements are dropped from here on"});
  }
  run.add({"schedule", options.schedule, Resumed::noted, "the learning rate changes from here on"});
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
