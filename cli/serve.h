// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/generate.h"

namespace CLI {
class App;
}

namespace weft::cli {

/// Options of `weft sample`.
struct ServeOptions {
  /// A directory: see weights_in.
  std::string model;
  /// Path of the tokenizer; empty: that of `model`.
  std::string tokenizer;
  std::vector<std::string> prompts;
  /// A file of prompts, one a line, which follow `prompts`; empty: none.
  std::string prompts_file;
  /// The prompts are messages of a user; the system message and the chat template for them.
  bool chats = false;
  std::string system, chat_template;
  std::vector<std::string> stops;
  int ranks = 1;
  /// Empty: tp over the ranks.
  std::string mesh;
  std::string device = "cpu";
  int64_t tokens = 200;
  /// The most prompts that are continued at once.
  int64_t batch = 16;
  SamplingOptions sampling;
  int threads = 0;
};

/// Adds the subcommand `sample`, whose flags land in `options`.
CLI::App* add_sample(CLI::App& program, ServeOptions& options);

/// Loads the model of the newest complete checkpoint, cut by heads over the ranks, and prints what
/// it makes of the prompts, in their order, and tokens/s. Throws what went wrong.
void serve(const ServeOptions& options);

}  // namespace weft::cli
