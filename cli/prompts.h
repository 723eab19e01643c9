// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/generate.h"
#include "weft/tokenizer.h"
#include "weft/transformer_config.h"

namespace weft::cli {

/// Options of `weft sample`.
struct ServeOptions {
  /// A directory: see weights_in.
  std::string model;
  /// Adapters to merge into it; empty: none.
  std::string adapter;
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
  GenerateOptions generation;
  int threads = 0;
};

/// The tokenizer of a directory, or of a tokenizer.json or tokenizer.model.
Tokenizer tokenizer_at(const std::string& path);

/// std::invalid_argument when a prompt has ids that the model does not have, or more than it takes.
/// Errors call the prompt `name`, and an id a `unit`.
void check_prompt(const std::string& name, std::span<const int64_t> ids, const char* unit,
                  const TransformerConfig& config);

/// The prompts of `weft sample` as tokens, and how the model's tokens are printed: by the tokenizer
/// of --tokenizer, of the model's directory or of what its run keeps, or else as bytes.
struct Prompts {
  /// std::invalid_argument names the flag or file that is wrong.
  explicit Prompts(const ServeOptions& options);
  /// Checks each prompt.
  void check(const TransformerConfig& config) const;

  std::optional<Tokenizer> tokenizer;
  /// The names of the prompts in errors, the printed starts of their continuations, and their
  /// tokens; none with --chat alone, which takes standard input.
  std::vector<std::string> names, starts;
  std::vector<std::vector<int64_t>> ids;

 private:
  void add(const ServeOptions& options, const std::string& name, const std::string& prompt);
  void add_lines(const ServeOptions& options);
};

}  // namespace weft::cli
