// SPDX-License-Identifier: Apache-2.0
#include "cli/train_options.h"

#include <CLI/CLI.hpp>
#include <charconv>

#include "weft/error.h"

namespace weft::cli {

CLI::App* add_train(CLI::App& program, TrainOptions& o) {
  CLI::App* train =
      program.add_subcommand("train", "Train a Llama on text, fully sharded over ranks");
  train->footer(
      "Example: weft train --data src --model tiny --ranks 4 --steps 200\n"
      "Exit codes: 0 done, 1 something failed on the way, 2 a flag, file or mesh is wrong.");
  train
      ->add_option(
          "--data", o.data,
          "Files or directories of text (bytes are the tokens), or llm.c .bin token shards")
      ->required()
      ->type_name("PATH...");
  train->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  train
      ->add_option("--model", o.model,
                   "tiny, small or a Hugging Face config.json (default: tiny, or that of --init)")
      ->type_name("MODEL");
  train
      ->add_option("--init", o.init,
                   "Directory of a Hugging Face Llama whose weights to start from")
      ->type_name("DIR");
  train
      ->add_option("--ranks", o.ranks,
                   "Ranks, threads of this process (default: those of --mesh, or 1)")
      ->check(CLI::Range(1, 1024));
  train->add_option("--mesh", o.mesh, "Axes of the ranks, e.g. dp=4 (default: dp over all ranks)")
      ->type_name("AXIS=N");
  train->add_option("--steps", o.steps, "Updates of the weights")->capture_default_str();
  train->add_option("--batch", o.batch, "Rows of a step, over all ranks")->capture_default_str();
  train->add_option("--seq", o.seq, "Tokens of a row")->capture_default_str();
  train->add_option("--seed", o.seed, "Of the weights, the order of the data and the sample")
      ->capture_default_str();
  train->add_option("--lr", o.learning_rate, "Peak learning rate of AdamW; warm-up, then cosine")
      ->capture_default_str();
  train->add_option("--weight-decay", o.weight_decay, "Of AdamW")->capture_default_str();
  train->add_option("--clip", o.clip, "Largest norm of the gradients")->capture_default_str();
  train->add_option("--threads", o.threads, "Threads a rank (default: the cores, shared evenly)");
  train->add_option("--metrics", o.metrics, "Write one JSON object a step to FILE")
      ->type_name("FILE");
  train->add_option("--sample", o.sample, "Tokens to generate when done")->capture_default_str();
  train->add_option("--prompt", o.prompt, "Text the sample begins with (default: held-out text)");
  return train;
}

std::vector<MeshAxis> parsed_axes(const std::string& text) {
  std::vector<MeshAxis> axes;
  size_t at = 0;
  while (at <= text.size()) {
    size_t comma = std::min(text.find(',', at), text.size());
    std::string axis = text.substr(at, comma - at);
    size_t equals = axis.find('=');
    int size = 0;
    const char* first = axis.data() + std::min(axis.size(), equals + 1);
    const char* last = axis.data() + axis.size();
    auto [stop, error] = std::from_chars(first, last, size);
    bool good = equals != std::string::npos && equals > 0 && error == std::errc() && stop == last;
    if (!good || size < 1) {
      fail("--mesh ", in_quotes(text), ": ", in_quotes(axis),
           " is no axis; write for example dp=4");
    }
    axes.push_back({axis.substr(0, equals), size});
    at = comma + 1;
  }
  return axes;
}

static void check_positive(const char* flag, int64_t value) {
  if (value < 1) fail(flag, " is ", value, "; at least 1");
}

void complete(TrainOptions& o) {
  check_positive("--steps", o.steps);
  check_positive("--batch", o.batch);
  check_positive("--seq", o.seq);
  if (!(o.learning_rate > 0)) fail("--lr is ", o.learning_rate, "; above 0");
  if (!(o.clip > 0)) fail("--clip is ", o.clip, "; above 0");
  if (o.weight_decay < 0) fail("--weight-decay is ", o.weight_decay, "; at least 0");
  if (o.threads < 0) fail("--threads is ", o.threads, "; at least 1, or 0 to share the cores");
  if (o.sample < 0) fail("--sample is ", o.sample, "; at least 0");
  if (o.model.empty()) o.model = o.init.empty() ? "tiny" : o.init;
  if (o.mesh.empty()) o.mesh = "dp=" + std::to_string(std::max(1, o.ranks));
  std::vector<MeshAxis> axes = parsed_axes(o.mesh);
  if (axes.size() != 1) {
    fail("--mesh ", o.mesh, " has ", axes.size(), " axes; training shards over one, e.g. dp=4");
  }
  if (o.ranks == 0) o.ranks = axes[0].size;
  if (axes[0].size != o.ranks) {
    fail("--mesh ", o.mesh, " has ", axes[0].size, " ranks but --ranks is ", o.ranks);
  }
}

}  // namespace weft::cli
