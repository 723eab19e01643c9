// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/serve.h"
#include "weft/tokenizer.h"
#include "weft/transformer_config.h"

namespace weft::cli {

/// std::invalid_argument when a prompt has ids that the model does not have, or more than it takes.
/// Errors call the prompt `name`, and an id a `unit`.
void check_prompt(const std::string& name, std::span<const int64_t> ids, const char* unit,
                  const TransformerConfig& config);

/// The prompts of `weft sample` as tokens, and how the model's tokens are printed: by the tokenizer
/// of --tokenizer, of the model's directory or of what its run keeps, or else as bytes.
class Prompts {
 public:
  /// std::invalid_argument names the flag or file that is wrong.
  explicit Prompts(const ServeOptions& options);
  /// The prompts as given, and their tokens; none with --chat alone, which takes standard input.
  const std::vector<std::string>& texts() const { return texts_; }
  const std::vector<std::vector<int64_t>>& ids() const { return ids_; }
  /// Checks each prompt.
  void check(const TransformerConfig& config) const;
  const std::optional<Tokenizer>& tokenizer() const { return tokenizer_; }

 private:
  void add(const ServeOptions& options, const std::string& name, const std::string& prompt);
  void add_lines(const ServeOptions& options);

  std::optional<Tokenizer> tokenizer_;
  /// The names of the prompts in errors, and their texts.
  std::vector<std::string> names_, texts_;
  std::vector<std::vector<int64_t>> ids_;
};

}  // namespace weft::cli
