// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/extend/token_files.h"
#include "weft/tokenizer.h"

namespace weft::rows {

/// The tokens of a text, or of a part of one.
struct Document {
  std::vector<int64_t> ids;
  /// True for each token that counts as a target; empty: all tokens count.
  std::vector<uint8_t> counts;
  /// True when it continues the document of the part before.
  bool continues = false;
};

/// Makes documents of texts and of lines of JSON. Several threads may read at once.
class DocumentReader {
 public:
  explicit DocumentReader(const TokenFileOptions& options);

  const Tokenizer& tokenizer() const { return options_.tokenizer; }
  /// A document that is one text: with the tokens that the tokenizer expects around a text, and the
  /// token that ends a text.
  Document text(std::string_view text) const;
  /// A line of JSON. std::invalid_argument "data: <where>: ..." names what is wrong.
  Document line(const std::string& line, const std::string& where) const;
  /// Adds the tokens before a text, and those after it.
  void begin(std::vector<int64_t>& ids) const;
  void end(std::vector<int64_t>& ids) const;

 private:
  TokenFileOptions options_;
  std::vector<int64_t> before_, after_;
};

/// Marks the tokens of `text`, whose ids are `ids`, that overlap bytes [begin, end) of a span.
/// Spans ascend.
std::vector<uint8_t> marked(const Tokenizer& tokenizer, std::string_view text,
                            const std::vector<int64_t>& ids,
                            const std::vector<std::pair<size_t, size_t>>& spans);

}  // namespace weft::rows
