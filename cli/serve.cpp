// SPDX-License-Identifier: Apache-2.0
#include "cli/serve.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>

#include "cli/decode.h"
#include "cli/devices.h"
#include "cli/numbers.h"
#include "cli/ranks.h"
#include "cli/resume.h"
#include "cli/run_description.h"
#include "cli/sample.h"
#include "cli/token_stream.h"
#include "cli/weights.h"
#include "weft/communicator.h"
#include "weft/error.h"
#include "weft/ranks.h"
#include "weft/tensor_parallel.h"

namespace weft::cli {

using ServeClock = std::chrono::steady_clock;

CLI::App* add_sample(CLI::App& program, ServeOptions& o) {
  CLI::App* sample = program.add_subcommand("sample", "Continue a text by a model that was saved");
  sample->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  sample
      ->add_option("DIR,--resume", o.model,
                   "A run (its newest complete checkpoint), a checkpoint, an import, or a Hugging "
                   "Face Llama")
      ->required()
      ->type_name("DIR");
  sample->add_option("--prompt", o.prompt, "Text that is continued; its bytes are the tokens")
      ->required();
  takes_whole(sample->add_option("--tokens", o.tokens, "Tokens to add"), 1)->capture_default_str();
  takes_whole(sample->add_option("--ranks", o.ranks,
                                 "Ranks that share the heads; they must divide the kv heads"),
              1, kMostLocalRanks)
      ->capture_default_str();
  sample
      ->add_option(
          "--device", o.device,
          "Where the ranks compute: cpu; cuda: each rank on a GPU, in turn; cuda:0: all on "
          "that one")
      ->capture_default_str();
  takes_number(sample->add_option("--temperature", o.temperature,
                                  "Of the distribution drawn from; 0: the likeliest"),
               0)
      ->capture_default_str();
  takes_whole(sample->add_option("--seed", o.seed, "Of the draws"), 0, UINT64_MAX)
      ->capture_default_str();
  takes_whole(sample->add_option("--threads", o.threads,
                                 "Threads a rank (default: the cores, shared evenly)"),
              0, kMostThreads);
  sample->footer(
      "Keys and values are kept by layer, cut with the heads. Tokens/s counts what is added.\n"
      "Example: weft sample runs/tiny --prompt \"The \" --ranks 2");
  return sample;
}

static std::vector<int64_t> tokens_of(const std::string& prompt, int64_t vocabulary) {
  std::vector<int64_t> tokens;
  for (const char byte : prompt) {
    tokens.push_back(byte & 0xff);
    if (tokens.back() < vocabulary) continue;
    fail("--prompt: byte is ", tokens.back(), ", expected one below ", vocabulary,
         ", the model's vocabulary");
  }
  return tokens;
}

static int64_t chosen_token(const std::vector<double>& logits, double temperature,
                            std::mt19937_64& random) {
  if (temperature > 0) return drawn(logits, temperature, random);
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

static void print_token(int64_t token) {
  token < 256 ? std::printf("%c", static_cast<char>(token))
              : std::printf("<%lld>", static_cast<long long>(token));
  std::fflush(stdout);
}

/// One rank's part.
static void serve_rank(const ServeOptions& options, const Communicator& world) {
  const std::string path =
      is_hugging_face(options.model) ? options.model : chosen_checkpoint(options.model, world);
  if (path.empty())
    fail("sample: ", options.model, " has no complete checkpoint, expected at least one");
  const LlamaConfig config = config_of_weights(path);
  if (world.rank() == 0) warn_of_bytes(config.vocabulary);
  const std::vector<int64_t> prompt = tokens_of(options.prompt, config.vocabulary);
  const int64_t context =
      std::min(config.max_sequence, static_cast<int64_t>(prompt.size()) + options.tokens);
  const DeviceMesh mesh(world, {{"tp", world.size()}});
  Llama model(config);
  parallelize(model, mesh["tp"], llama_styles(config));
  model.materialize(device_of_rank(options.device, world.rank()));
  load_weights(model, path);
  if (launched_ranks() > 1) check_replicas(model);
  const bool first = world.rank() == 0;
  Decoder decoder(model, mesh, context);
  std::mt19937_64 random(options.seed);
  if (first) std::printf("%s", options.prompt.c_str());
  const auto began = ServeClock::now();
  std::vector<double> logits = decoder.next(prompt);
  const auto ready = ServeClock::now();
  int64_t count = 0;
  while (true) {
    const int64_t token = chosen_token(logits, options.temperature, random);
    if (first) print_token(token);
    ++count;
    if (decoder.position() == context || count == options.tokens) break;
    logits = decoder.next({&token, 1});
  }
  if (!first) return;
  const std::chrono::duration<double> prefill = ready - began, took = ServeClock::now() - ready;
  std::printf("\n");
  std::fflush(stdout);
  std::fprintf(
      stderr,
      "weft: %zu tokens read in %.3f s, %lld added at %.1f tokens/s; cache %.1f MB a rank\n",
      prompt.size(), prefill.count(), static_cast<long long>(count),
      static_cast<double>(count) / took.count(), static_cast<double>(decoder.cache_bytes()) / 1e6);
}

void serve(const ServeOptions& options) {
  if (options.prompt.empty()) fail("--prompt is empty, expected at least one byte");
  if (!std::filesystem::is_directory(options.model)) {
    fail("sample: ", options.model, " is missing or a file, expected a directory");
  }
  if (options.device == "meta") fail("--device is meta, expected cpu or cuda");
  check_available(device_named(options.device));
  run_world(job_ranks(options.ranks, "--ranks"),
            [&](const Communicator& world) {
              check_same_flags(world);
              serve_rank(options, world);
            },
            {.threads_per_rank = options.threads, .seed = options.seed});
}

}  // namespace weft::cli
