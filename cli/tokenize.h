// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/tokenizer.h"

namespace CLI {
class App;
}

namespace weft::cli {

/// Options of `weft tokenize`.
struct TokenizeOptions {
  /// A directory with a tokenizer, or its file.
  std::string tokenizer;
  /// Text files, or token files with `decodes`; directories stand for the files below them.
  std::vector<std::string> data;
  std::string output;
  bool decodes = false;
  bool no_special = false;
  int64_t file_tokens = 100'000'000;
};

/// The tokenizer of a directory, or of a tokenizer.json or tokenizer.model.
Tokenizer tokenizer_at(const std::string& path);

/// Adds the subcommand `tokenize`, whose flags land in `options`.
CLI::App* add_tokenize(CLI::App& program, TokenizeOptions& options);

/// Writes token files, or the text of token files to stdout. Throws what went wrong.
void tokenize(const TokenizeOptions& options);

}  // namespace weft::cli
