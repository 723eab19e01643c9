// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "cli/adapters.h"
#include "cli/commands.h"
#include "cli/data.h"
#include "cli/numbers.h"
#include "cli/parallel_transformer.h"
#include "cli/prompts.h"
#include "weft/communicator.h"
#include "weft/error.h"
#include "weft/extend/run_folder.h"
#include "weft/ranks.h"
#include "weft/tensor_parallel.h"

namespace weft::cli {

using ServeClock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

namespace {

/// Prints texts that grow at the same time one after the other: the first that has not ended as it
/// grows, the later ones when those before have ended. Each ends its line.
class OrderedTexts {
 public:
  /// `starts`: the start of each text.
  explicit OrderedTexts(std::vector<std::string> starts)
      : waiting_(std::move(starts)), ended_(waiting_.size()) {
    print_first();
  }

  void add(size_t text, std::string_view part) {
    waiting_[text] += part;
    if (text == first_) print_first();
  }

  void end(size_t text) {
    waiting_[text] += '\n';
    ended_[text] = true;
    while (first_ < waiting_.size()) {
      print_first();
      if (!ended_[first_]) return;
      ++first_;
    }
  }

 private:
  void print_first() {
    if (first_ == waiting_.size()) return;
    print(std::exchange(waiting_[first_], {}));
    std::fflush(stdout);
  }

  std::vector<std::string> waiting_;
  std::vector<bool> ended_;
  /// The first text that has not ended.
  size_t first_ = 0;
};

}  // namespace

static void add_prompt_flags(CLI::App& sample, ServeOptions& o) {
  sample
      .add_option("--prompt", o.prompts,
                  "Text that is continued; may be repeated. Without a tokenizer its bytes are the "
                  "tokens")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_named(sample, "--prompts", o.prompts_file, "FILE", "A file of prompts, one a line");
  add_named(sample, "--tokenizer", o.tokenizer, "DIR",
            "Directory of the tokenizer, or its file (default: DIR, or what its run keeps of "
            "--init)");
  sample.add_flag("--chat", o.chats,
                  "The prompt is a message to the model, in the form that its chat template gives; "
                  "without one, each line of standard input is the next message of a conversation");
  takes_text(add_named(sample, "--system", o.system, "TEXT", "System message before the prompt"));
  add_named(sample, "--chat-template", o.chat_template, "NAME",
            "Name of a chat template, where the model has none, or another of the model's");
  takes_text(add_named(sample, "--stop", o.stops, "TEXT",
                       "Text before which the output ends; may be repeated"))
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

static void add_sampling_flags(CLI::App& sample, SamplingOptions& o) {
  add_number(sample, "--temperature", o.temperature,
             "Temperature of the distribution drawn from; 0: the likeliest", 0);
  add_whole(sample, "--top-k", o.top_k, "Draw from so many of the likeliest; 0: all", 0);
  add_number(sample, "--top-p", o.top_p,
             "Draw from the likeliest that together have this probability", above(0), 1);
  add_number(sample, "--min-p", o.min_p,
             "Draw from those with this fraction of the largest probability", 0, 1);
  add_number(sample, "--repetition-penalty", o.repetition_penalty,
             "Factor that makes tokens that occurred less likely; 1: none", above(0));
  add_whole(sample, "--seed", o.seed, "Seed of the draws; the next prompt draws with the next seed",
            0, UINT64_MAX);
}

static void print_speed(const Prompts& prompts, int64_t added, Seconds prefill, Seconds rest) {
  size_t read = 0;
  for (const auto& ids : prompts.ids) read += ids.size();
  const size_t count = prompts.ids.size();
  const std::string of = count == 1 ? "" : concat(" of ", count, " prompts");
  std::fprintf(stderr, "weft: %zu token%s%s read in %.3f s, %lld added at %.1f tokens/s\n", read,
               read == 1 ? "" : "s", of.c_str(), prefill.count(), static_cast<long long>(added),
               static_cast<double>(added) / rest.count());
}

/// Continues the prompts and prints the texts on the first rank while they are made.
static void continue_prompts(const ServeOptions& options, const Prompts& prompts,
                             TransformerModel& model, const DeviceMesh& mesh) {
  const bool prints = mesh.communicator().rank() == 0;
  std::optional<OrderedTexts> texts;
  if (prints) texts.emplace(prompts.starts);
  const auto began = ServeClock::now();
  std::optional<ServeClock::time_point> ready;
  int64_t count = 0;
  const auto see = [&](size_t prompt, const std::string& part, bool is_last) {
    if (!ready) ready = ServeClock::now();
    if (!is_last) ++count;
    if (texts) texts->add(prompt, part);
    if (texts && is_last) texts->end(prompt);
  };
  if (prompts.tokenizer) {
    generate_text(model, mesh, *prompts.tokenizer, prompts.ids, options.generation, options.stops,
                  see);
  } else {
    const auto see_id = [&](size_t prompt, std::optional<int64_t> id) {
      see(prompt, id ? byte_text(*id) : "", !id);
      return true;
    };
    generate(model, mesh, prompts.ids, options.generation, see_id);
  }
  const auto first = ready.value_or(ServeClock::now());
  if (prints) print_speed(prompts, count, first - began, ServeClock::now() - first);
}

/// The next line that is not empty, with its line end; "" at the end of the input.
static std::string next_line() {
  std::string line;
  if (isatty(STDIN_FILENO)) std::fputs("> ", stderr);
  while (std::getline(std::cin, line)) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) return line + '\n';
  }
  return {};
}

/// Answers each line of standard input as the next message of one conversation, until it ends.
/// std::invalid_argument names a line with which the conversation is longer than the model takes.
/// Collective; the first rank reads and prints.
static void converse(const ServeOptions& options, const Prompts& prompts, TransformerModel& model,
                     const DeviceMesh& mesh) {
  const Communicator& world = mesh.communicator();
  const bool prints = world.rank() == 0;
  const Tokenizer& tokenizer = *prompts.tokenizer;
  const auto see = [&](const std::string& part) {
    if (!prints) return;
    print(part);
    std::fflush(stdout);
  };
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  GenerateOptions generation = options.generation;
  for (int turn = 1;; ++turn, ++generation.sampling.seed) {
    std::string line = world.broadcast(prints ? next_line() : "", 0);
    if (line.empty()) return;
    line.pop_back();
    messages.push_back({"user", line});
    const std::vector<int64_t> ids = tokenizer.encode(tokenizer.chat(messages), false);
    check_prompt(concat("sample: the conversation up to message ", turn, " of standard input"), ids,
                 "token", model.config());
    messages.push_back(
        {"assistant", generate_text(model, mesh, tokenizer, ids, generation, options.stops, see)});
    see("\n");
  }
}

/// The axes of --mesh, cp, ep and tp, or tp over all ranks.
static std::vector<MeshAxis> axes_of(const ServeOptions& options) {
  const int ranks = job_ranks(options.ranks, "--ranks");
  if (options.mesh.empty()) return {{"tp", ranks}};
  ranks_of_mesh(options.mesh, std::max(kMostLocalRanks, ranks), ranks == 1 ? 0 : ranks,
                launched_ranks() > 1 ? "the job's number of processes" : "--ranks");
  std::vector<MeshAxis> axes{{kSequenceAxis, 1}, {kExpertAxis, 1}, {"tp", 1}};
  for (const MeshAxis& axis : parsed_axes(options.mesh)) {
    const auto same = std::ranges::find(axes, axis.name, &MeshAxis::name);
    if (same == axes.end()) {
      fail("--mesh ", options.mesh, ": axis is ", axis.name, ", expected tp, ep or cp");
    }
    same->size = axis.size;
  }
  std::erase_if(axes, [](const MeshAxis& axis) { return axis.size == 1 && axis.name != "tp"; });
  return axes;
}

/// One rank's part.
static void serve_rank(const ServeOptions& options, const Prompts& prompts,
                       const std::vector<MeshAxis>& axes, const Communicator& world) {
  const std::string path = is_hugging_face(options.model)
                               ? options.model
                               : chosen_checkpoint("sample:", options.model, world);
  if (path.empty())
    fail("sample: ", options.model, " has no complete checkpoint, expected at least one");
  const TransformerConfig config = config_of_weights(path);
  if (world.rank() == 0 && !prompts.tokenizer) warn_of_bytes(config.vocabulary);
  prompts.check(config);
  check_expert_axis(axes, config, options.mesh);
  const DeviceMesh mesh(world, axes);
  TransformerModel model(config);
  if (!options.adapter.empty()) add_adapters(model, adapters_at(model, options.adapter));
  if (std::ranges::count(axes, kExpertAxis, &MeshAxis::name) > 0) {
    parallelize(model, mesh[kExpertAxis], expert_styles());
  }
  parallelize(model, mesh["tp"], transformer_styles(config));
  model.materialize(device_of_rank(options.device, world.rank()));
  load_weights(model, path);
  if (!options.adapter.empty()) {
    load_adapters(model, options.adapter);
    merge_adapters(model);
  }
  if (launched_ranks() > 1) check_replicas(model);
  if (prompts.ids.empty()) return converse(options, prompts, model, mesh);
  continue_prompts(options, prompts, model, mesh);
}

/// In a conversation the other ranks wait for what the user types.
static constexpr auto kUserDeadline = std::chrono::hours(24 * 365);

/// Loads the model of the newest complete checkpoint, cut by heads over the ranks, and prints what
/// it makes of the prompts, in their order, and tokens/s. Throws what went wrong.
static void serve(const ServeOptions& options) {
  check_directory("sample:", options.model);
  if (options.device == "meta") fail("--device is meta, expected cpu or cuda");
  check_available(device_named(options.device));
  const Prompts prompts(options);
  const std::vector<MeshAxis> axes = axes_of(options);
  int ranks = 1;
  for (const MeshAxis& axis : axes) ranks *= axis.size;
  run_world(ranks,
            [&](const Communicator& world) {
              check_same_flags(world);
              serve_rank(options, prompts, axes, world);
            },
            {.deadline = prompts.ids.empty() ? kUserDeadline : RunOptions().deadline,
             .threads_per_rank = options.threads,
             .seed = options.generation.sampling.seed});
}

void add_sample(CLI::App& program) {
  const auto options = std::make_shared<ServeOptions>();
  ServeOptions& o = *options;
  CLI::App* sample = program.add_subcommand("sample", "Continue a text by a model that was saved");
  sample->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_named(*sample, "DIR,--resume", o.model, "DIR",
            "A run (its newest complete checkpoint), a checkpoint, an import, or a Hugging "
            "Face model")
      ->required();
  add_prompt_flags(*sample, o);
  add_adapter_flag(*sample, o.adapter);
  add_whole(*sample, "--tokens", o.generation.tokens, "Tokens to add", 1);
  add_whole(*sample, "--batch", o.generation.batch, "The most prompts that are continued at once",
            1);
  add_whole(*sample, "--ranks", o.ranks, "Ranks that share the heads", 1, kMostLocalRanks);
  add_named(*sample, "--mesh", o.mesh, "AXIS=N,...",
            "Axes of the ranks instead: tp shares the heads, ep the experts, cp the tokens of "
            "prompts, e.g. ep=4,tp=2");
  add_device_flag(*sample, o.device);
  add_sampling_flags(*sample, o.generation.sampling);
  add_whole(*sample, "--threads", o.threads, "Threads a rank (default: the cores, shared evenly)",
            0, kMostThreads);
  sample->footer(
      "Keys and values are kept by layer, cut with the heads. Tokens/s counts what is added.\n"
      "Example: weft sample runs/tiny --prompt \"The \" --ranks 2\n"
      "         weft sample llama --chat --prompt \"Who are you?\"\n"
      "         weft sample llama --chat\n"
      "         weft sample llama --prompts questions.txt --batch 32");
  sample->callback([options] { again_if_removed(options->model, [&] { serve(*options); }); });
}

}  // namespace weft::cli
