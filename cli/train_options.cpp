// SPDX-License-Identifier: Apache-2.0
#include "cli/train_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "cli/adapters.h"
#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/pipeline.h"
#include "cli/run_description.h"
#include "cli/step_cost.h"
#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/extend/metrics_destination.h"
#include "weft/extend/run_folder.h"
#include "weft/extend/store.h"
#include "weft/optimizer_named.h"
#include "weft/program.h"
#include "weft/ranks.h"
#include "weft/transformer.h"

namespace weft::cli {

namespace fs = std::filesystem;

static constexpr int kSignalled = 128;

/// How long the run trains, and by which rule.
static void add_numbers(CLI::App& train, TrainOptions& o) {
  add_whole(train, "--steps", o.steps, "Updates of the weights", 1);
  add_whole(train, "--seed", o.seed, "Seed of the weights, the order of the data and the sample", 0,
            UINT64_MAX);
  add_optimizer_flag(train, o.parallel.optimizer);
  add_number(train, "--lr", o.learning_rate,
             "Peak learning rate (default: 0.003; with --init 2e-05, with --lora 0.0002; a tenth "
             "of these for lion; with --resume as before)",
             above(0));
  std::vector<std::string> schedules = schedule_names();
  schedules.insert(schedules.end(), {"gpipe", "1f1b", "interleaved", "zb"});
  add_shown(train, "--schedule", o.schedule,
            "How the learning rate falls after the warm-up; gpipe, 1f1b, interleaved or zb: as "
            "--pipeline-schedule")
      ->check(CLI::IsMember(schedules));
  add_schedule_flags(train, o);
  add_number(train, "--weight-decay", o.weight_decay,
             "Weight decay, decoupled but for adam and sgd", 0);
  add_number(train, "--beta1", o.beta1,
             "Decay of the first moment, which is the momentum of sgd and muon (default: 0.9; 0.95 "
             "for muon)",
             0, 1);
  add_number(train, "--beta2", o.beta2,
             "Decay of the second moment (default: 0.95 for adamw, adam, adamw8bit and muon; 0.999 "
             "for lamb, 0.99 for lion)",
             0, 1);
  add_number(
      train, "--eps", o.eps,
      "Number that is added to the root of the second moment (default: 1e-08; 1e-06 for lamb)",
      above(0));
  add_named(train, "--no-decay", o.no_decay, "REGEX",
            "Regular expression for the names of parameters that do not decay, such as "
            "\"norm|bias|embed\"; vectors never do");
  add_number(train, "--clip", o.clip, "Largest norm of the gradients", above(0));
  add_number(train, "--clip-value", o.clip_value,
             "Largest magnitude of an element of the gradients, before --clip; 0: any", 0);
  add_number(train, "--ema", o.ema,
             "Decay of an average of the weights, such as 0.999, which is saved (weft ckpt export "
             "--prefix ema/ writes it) and with which validations are made; 0: none",
             0, 0.999999999);
  add_number(train, "--balance-rate", o.balance_rate,
             "Change per step of the biases that balance the load of experts (DeepSeek-V3); 0: "
             "they stay (default: 0.001)",
             0);
  add_number(train, "--peak-tflops", o.peak_tflops,
             "Peak rate of a device (on the CPU: of a rank), in 1e12 operations a second. MFU is a "
             "fraction of it, and counts the needed half of a causal attention "
             "(default: the data sheet's, where the GPU is known)",
             above(0), 1e9);
  add_whole(train, "--threads", o.threads, "Threads a rank (default: the cores, shared evenly)", 0,
            kMostThreads);
  add_number(train, "--deadline", o.deadline,
             "Seconds that a rank waits for another before all ranks fail and name that rank",
             0.001, 1e6);
}

static CLI::Option* add_policy(CLI::App& train, const char* flag, std::string& policy,
                               const char* about) {
  return add_shown(train, flag, policy, about)->check(CLI::IsMember({"stop", "skip"}));
}

/// Adds flags of validations, and of what happens where a step or a validation goes wrong.
static void add_loop_flags(CLI::App& train, TrainOptions& o) {
  add_named(train, "--validation", o.validation, "PATH...",
            "Files or directories to validate on (default: the last rows of --data are held out)");
  add_whole(train, "--validate-every", o.validate_every,
            "Steps between validations (default, and 0: a tenth of --steps)", 0);
  add_whole(train, "--validation-batches", o.validation_batches,
            "Batches of a validation; 0: all rows", 0);
  train.add_flag_function(
      "--strict-plan", [](int64_t) { set_strict_plan(true); },
      "Check the steps of redistributions and of FSDP before each run, not only the first");
  train.add_flag("--keep-best", o.keep_best,
                 "Save to the folder best of --save whenever a validation finds a lower loss");
  add_whole(train, "--patience", o.patience,
            "End after so many validations in a row without a lower loss; 0: go on", 0);
  CLI::Option* spike =
      add_number(train, "--spike-threshold", o.spike,
                 "A loss above this times the median of the last 32 is a spike; 0: none is", 0);
  add_policy(train, "--on-spike", o.on_spike,
             "stop: end with an error that names the parameter with the largest gradient; skip: "
             "leave the weights as they are")
      ->needs(spike);
  add_policy(train, "--on-non-finite", o.on_non_finite,
             "The same for a loss or a gradient that is not finite");
  add_whole(train, "--most-skipped", o.most_skipped, "Steps in a row that may be skipped", 0);
  add_whole(train, "--check-replicas", o.check_replicas, "Steps between checks of replicas", 0);
  add_whole(
      train, "--shadow", o.shadow,
      "Compute one op call in so many again, on whole tensors by the op's definition, and end "
      "at the first whose result or gradient is off, which is named; 0: none. A checked call "
      "costs about five whole ones on each rank",
      0);
}

static void add_resume_flags(CLI::App& command, ResumeOptions& o) {
  CLI::Option* save =
      add_named(command, "--save", o.save, "DIR", "Save checkpoints to this directory");
  add_whole(command, "--save-every", o.save_every,
            "Steps between checkpoints (default, and 0: only the last)", 0);
  add_whole(command, "--keep", o.keep,
            "Complete checkpoints to keep in addition to the newest; 0: all", 0)
      ->needs(save);
  command
      .add_flag("--save-non-finite", o.save_non_finite,
                "Save weights and optimizer states that hold NaN or infinity too, and mark them; "
                "without it, such a save ends the run")
      ->needs(save);
  add_number(command, "--lease-seconds", o.lease_seconds,
             "Seconds that another job waits for a sign of life of this one before it takes "
             "the directory over",
             0.1, 86400)
      ->needs(save);
  CLI::Option* resume = add_named(
      command, "--resume", o.resume, "DIR",
      "Go on from the newest complete checkpoint of this directory; begin a new run where there "
      "is none, or only what an interrupted first save left. With the same directory "
      "as --save it need not exist");
  add_named(command, "--allow-change", o.allow_change, "WHAT,...",
            "With --resume, settings that may differ from those of the checkpoint's run: data, "
            "seed, batch, seq, lr, schedule (with its steps and numbers), weight-decay, clip, "
            "clip-value, dtype, beta1, beta2, eps, balance-rate, reproducible; "
            "\"start\": begin at step 1 where all checkpoints have lost files or are damaged")
      ->delimiter(',')
      ->needs(resume)
      ->check(CLI::IsMember(changes_that_can_be_allowed()));
}

/// Throws when --cuda-graph is given with something that cannot be recorded.
static void check_graph(TrainOptions& o) {
  if (device_named(o.device).kind != DeviceKind::cuda) {
    fail("--cuda-graph: --device is ", o.device, ", expected a GPU");
  }
  if (o.steps < 3)
    fail("--cuda-graph: --steps is ", o.steps, ", expected at least 3; the third step is recorded");
  if (o.ranks > 1 && launched_ranks() <= 1) {
    fail("--cuda-graph: --ranks is ", o.ranks,
         ", threads of one process, expected processes with a GPU each (weft run, mpirun)");
  }
  if (o.ranks > 1 && !o.trace.empty()) {
    fail(
        "--trace is given with --cuda-graph, expected one of them; a trace does not record "
        "collectives within a graph");
  }
  if (o.spike > 0 || o.on_non_finite == "skip") {
    fail("--cuda-graph is given with ", o.spike > 0 ? "--spike-threshold" : "--on-non-finite skip",
         ", expected one of them; a recorded step always updates");
  }
  for (const auto& [what, tier] : tiers_of(o.parallel)) {
    if (what == "state" || what == "auto" || !tier->offloads()) continue;
    fail("--cuda-graph: --offload is ", what, ", expected one for which the host does not wait");
  }
}

/// Fills in what was not said and checks what the flags say together.
static void complete(TrainOptions& o) {
  o.checkpoints.are_flags = o.checkpoints.heeds_signals = true;
  if (is_pipeline(o.schedule)) {
    o.parallel.pipeline = std::exchange(o.schedule, TrainOptions().schedule);
    o.pipeline_given = true;
  }
  if (o.device == "meta") fail("--device is meta, expected cpu or cuda; see weft estimate");
  check_available(device_named(o.device));
  check_directories(o.checkpoints);
  if (!o.init.empty()) o.init = weights_in("--init", o.init);
  if (!o.adapter.empty()) {
    const char* other = o.parallel.adapters.lora ? "with --lora" : "without --init";
    if (o.parallel.adapters.lora || o.init.empty()) {
      fail("--adapter is given ", other, ", expected it with --init alone, which is its base");
    }
    o.parallel.adapters.lora = adapters_at(TransformerModel(config_of_weights(o.init)), o.adapter);
  }
  if (o.parallel.adapters.lora && o.init.empty()) {
    fail("--lora is given without --init, expected the model that the adapters belong to");
  }
  if (o.warmup > o.steps) {
    fail("--warmup is ", o.warmup, ", expected at most --steps, ", o.steps);
  }
  take_saved_defaults(o);
  if (o.learning_rate == 0) {
    o.learning_rate = o.init.empty() ? 3e-3 : 2e-5;
    if (o.parallel.adapters.lora) o.learning_rate = kAdapterRate;
    if (o.parallel.optimizer == "lion") o.learning_rate /= 10;
  }
  optimizer_options(o);
  check_schedule(o);
  if (o.keep_best && o.checkpoints.save.empty()) {
    fail("--save is empty, expected a directory for --keep-best");
  }
  const char* flag = launched_ranks() > 1 ? "the job's number of processes" : "--ranks";
  const int most = std::max(kMostLocalRanks, launched_ranks());
  o.ranks = complete(o.parallel, job_ranks(o.ranks, "--ranks"), most, flag);
  if (o.cuda_graph) check_graph(o);
  check_offload(o.parallel, device_named(o.device));
  if (!o.prompt.empty() && o.sample == 0) {
    fail("--sample is 0, expected at least 1 for --prompt");
  }
}

static void add_output_flags(CLI::App& train, TrainOptions& o) {
  add_named(
      train, "--metrics", o.metrics, "FILE",
      "Write the figures of each step: to FILE.csv, to TensorBoard's event files in "
      "tensorboard:DIR or DIR/, or else as JSON lines; several may be given. With --save also "
      "to metrics.jsonl there. See weft report")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_named(train, "--trace", o.trace, "FILE",
            "Write ops and collectives of all ranks to FILE, as a Chrome trace");
  add_whole(train, "--sample", o.sample, "Tokens to generate when done", 0);
  train.add_option("--prompt", o.prompt, "Text the sample begins with (default: held-out text)");
}

/// Options that are added from here on stand under this title in the help.
static void begin_group(CLI::App& command, const char* title) {
  command.option_defaults()->group(title);
}

void add_train(CLI::App& program, int& code) {
  const auto options = std::make_shared<TrainOptions>();
  TrainOptions& o = *options;
  CLI::App* train =
      program.add_subcommand("train", "Train a transformer on text, sharded over ranks");
  train->footer(
      "Examples: weft train --data src --model tiny --ranks 4 --steps 200\n"
      "          weft train --data src --mesh dp=2,tp=2 --dtype bf16 --accumulate 2\n"
      "Exit codes: 0 done, 1 something failed on the way, 2 a flag, file or mesh is wrong,\n"
      "128 + signal: stopped by SIGINT, SIGTERM, SIGUSR2 or SIGHUP (unless nohup ignores it), "
      "after\n"
      "saving the step under way (with --save; mpirun passes on SIGUSR2 alone).");
  add_named(*train, "--data", o.data, "PATH...",
            "Files or directories of text, of lines of JSON (.jsonl) with texts or conversations, "
            "or of token files (.bin) of weft tokenize or llm.c")
      ->required();
  train->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  begin_group(*train, "Data");
  add_data_flags(*train, o.rows);
  begin_group(*train, "Model, ranks and memory");
  add_parallel_flags(*train, o.parallel);
  add_named(*train, "--init", o.init, "DIR",
            "Weights to start from: a Hugging Face model, a run, a checkpoint or an import");
  add_named(*train, "--adapter", o.adapter, "DIR",
            "Adapters to train further, with --init: of PEFT, or a run of weft train --lora");
  add_whole(*train, "--ranks", o.ranks,
            "Ranks, threads of this process (default: those of --mesh, or 1); started by weft run "
            "or mpirun, each process is one rank",
            1, kMostLocalRanks);
  add_device_flag(*train, o.device);
  train->add_flag("--cuda-graph", o.cuda_graph,
                  "Record the third step on a GPU, and play it from then on (the update apart with "
                  "--offload state); several ranks are processes with a GPU each");
  train->add_flag("--deterministic", o.deterministic,
                  "Compute equal bits in each run on GPUs, by processes or threads: NCCL adds in "
                  "the order of the ranks, cuDNN's gradient of attention in one order");
  train->add_flag("--reproducible", o.reproducible,
                  "Compute the same bits on any number of ranks and threads, by any --strategy and "
                  "--accumulate: a row at a time, on the CPU, in axes of --mesh that cut rows, pp, "
                  "and tp=2 or cp=2");
  begin_group(*train, "Steps and optimizer");
  add_numbers(*train, o);
  add_pipeline_flags(*train, o.parallel, o.pipeline_given);
  begin_group(*train, "Validation and trouble");
  add_loop_flags(*train, o);
  begin_group(*train, "Checkpoints");
  add_resume_flags(*train, o.checkpoints);
  begin_group(*train, "Output of the run");
  add_output_flags(*train, o);
  train->callback([options, &code] {
    const std::string& run = options->init.empty() ? options->checkpoints.resume : options->init;
    again_if_removed(run, [&] {
      TrainOptions own = *options;
      complete(own);
      cli::train(own);
    });
    if (const int signal = stopped_by()) code = kSignalled + signal;
  });
}

void complete(TrainOptions& o, const TransformerConfig& config) {
  const auto axes = parsed_axes(o.parallel.mesh);
  check_expert_axis(axes, config, o.parallel.mesh);
  check_pipeline(o, config);
  if (o.balance_rate && !config.sigmoid_router) {
    fail("--balance-rate: the model (", config.family,
         ") has no biases that balance the load of experts, expected some, as DeepSeek-V3 has");
  }
  if (o.cuda_graph && config.experts > 0) {
    fail("--cuda-graph: the model (", config.family,
         ") has experts, whose rows are counted on the host, expected a dense model");
  }
  if (!is_planned(o.parallel)) return;
  const std::string name = device_name(device_of_rank(o.device, 0));
  const int a_host = launched_ranks() > 1 ? launched_local_rank().size : o.ranks;
  // Equal on all ranks: the rates of that GPU, or of a CPU.
  const Machine machine = machine_of_device(name, o.parallel.dtype).value_or(Machine());
  const MemoryPlan plan = planned(config, o.parallel, o.ranks, std::max(1, a_host), machine);
  o.memory_plan = concat("at most ", plan.peak, " bytes a rank");
  if (config.experts > 0 && std::ranges::count(axes, kExpertAxis, &MeshAxis::name) > 0) {
    // The peak is a bound for this load.
    o.memory_plan += o.parallel.imbalance == 1
                         ? " with experts loaded evenly"
                         : concat(" with an imbalance of ", o.parallel.imbalance);
  }
  o.memory_plan += "; " + plan.text();
  o.parallel.choice = plan.choice;
}

/// A flag, and the file or folder that it names.
using Named = std::pair<const char*, std::string>;

static void check_outside(const Named& output, const std::string& data) {
  std::error_code ignored;
  const auto& [flag, path] = output;
  if (path.empty() || !is_directory(data)) return;
  const fs::path inner = located(path);
  const fs::path outer =
      is_object_path(data) ? fs::path(object_path(data)) : fs::canonical(data, ignored);
  const auto [end, stop] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  if (end == outer.end()) {
    fail(flag, ' ', path, " is within --data ", data,
         ", expected a place where it is not read as text");
  }
}

static void check_other_file(const Named& output, const Named& other) {
  const auto& [flag, path] = output;
  if (path.empty() || other.second.empty() || located(path) != located(other.second)) return;
  fail(flag, ' ', path, " is also the file of ", other.first, ", expected another file");
}

void check_output_files(const TrainOptions& options) {
  std::vector<Named> outputs{{"--trace", options.trace}};
  for (const std::string& metrics : options.metrics) {
    outputs.push_back({"--metrics", metrics_destination(metrics).path});
  }
  // If --model is missing, it is that of --init.
  std::vector<Named> inputs{{"--init", options.init}, {"--model", options.parallel.model}};
  std::vector<std::string> texts = options.data;
  texts.insert(texts.end(), options.validation.begin(), options.validation.end());
  for (const std::string& data : texts) {
    inputs.push_back({"--data", data});
    check_outside({"--save", options.checkpoints.save}, data);
    for (const Named& output : outputs) check_outside(output, data);
  }
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    for (const Named& input : inputs) check_other_file(*output, input);
    for (auto other = output + 1; other != outputs.end(); ++other)
      check_other_file(*output, *other);
  }
}

void check_writable(const char* flag, const std::string& path) {
  if (path.empty()) return;
  std::error_code ignored;
  const bool is_new = !fs::exists(path, ignored);
  (void)OutputFile(flag, path, OutputFile::Mode::append);
  if (is_new) fs::remove(path, ignored);
}

}  // namespace weft::cli
