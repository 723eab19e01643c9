// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/serve.h"
#include "weft/tokenizer.h"

namespace weft::cli {

/// The prompts of `weft sample` as tokens, and how the model's tokens are printed: by the tokenizer
/// of the model's directory or of --tokenizer, or else as bytes.
class Prompts {
 public:
  /// std::invalid_argument names the flag or file that is wrong.
  explicit Prompts(const ServeOptions& options);
  size_t size() const { return ids_.size(); }
  /// The tokens of a prompt; std::invalid_argument for one that a model of so many does not have.
  const std::vector<int64_t>& ids(size_t at, int64_t vocabulary) const;
  const std::optional<Tokenizer>& tokenizer() const { return tokenizer_; }

 private:
  void add(const ServeOptions& options, const std::string& prompt);

  std::optional<Tokenizer> tokenizer_;
  std::vector<std::vector<int64_t>> ids_;
};

}  // namespace weft::cli
