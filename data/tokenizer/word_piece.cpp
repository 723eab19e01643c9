// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/word_piece.h"

#include <algorithm>

#include "weft/error.h"

namespace weft::text {

WordPiece::WordPiece(const std::string& what, const Vocabulary& vocabulary,
                     const std::string& unknown, const std::string& prefix, size_t most_characters)
    : starts_(vocabulary), most_characters_(most_characters) {
  for (const auto& [piece, id] : vocabulary) {
    longest_ = std::max(longest_, piece.size());
    if (piece.starts_with(prefix)) rests_.emplace(piece.substr(prefix.size()), id);
  }
  const auto found = vocabulary.find(unknown);
  if (found == vocabulary.end()) {
    fail(what, ": the unknown token is ", in_quotes(unknown), ", expected one of the vocabulary");
  }
  unknown_ = found->second;
}

void WordPiece::encode(std::string_view word, std::vector<int32_t>& ids) const {
  const auto begins_character = [](char byte) { return (byte & 0xC0) != 0x80; };
  const size_t before = ids.size();
  const auto characters = static_cast<size_t>(std::ranges::count_if(word, begins_character));
  if (characters > most_characters_) return ids.push_back(unknown_);
  for (std::string_view rest = word; !rest.empty();) {
    const Vocabulary& pieces = rest.size() == word.size() ? starts_ : rests_;
    size_t size = std::min(rest.size(), longest_);
    auto found = pieces.end();
    for (; size > 0; --size) {
      if (size < rest.size() && !begins_character(rest[size])) continue;
      found = pieces.find(rest.substr(0, size));
      if (found != pieces.end()) break;
    }
    if (found == pieces.end()) {
      ids.resize(before);
      return ids.push_back(unknown_);
    }
    ids.push_back(found->second);
    rest.remove_prefix(size);
  }
}

}  // namespace weft::text
