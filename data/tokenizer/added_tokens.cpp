// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "data/tokenizer/text_model.h"
#include "data/unicode/unicode.h"

namespace weft::text {

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::vector<DoubleArray::Entry> entries;
  for (const AddedToken& token : tokens_) {
    entries.emplace_back(token.content, static_cast<int32_t>(&token - tokens_.data()));
  }
  tree_ = DoubleArray(std::move(entries));
}

static bool is_whole_word(std::string_view whole, size_t begin, size_t end) {
  if (begin > 0 && is_word(code_point_at(whole, character_before(whole, begin)).value)) {
    return false;
  }
  return end == whole.size() || !is_word(code_point_at(whole, end).value);
}

bool AddedTokens::find(std::string_view whole, size_t at, size_t from, Match& match) const {
  for (; at < whole.size(); ++at) {
    if (tree_.child(0, whole[at]) == 0) continue;
    const std::string_view content = whole.substr(at, tree_.longest(whole.substr(at)));
    if (content.empty()) continue;
    const AddedToken& token = tokens_[static_cast<size_t>(tree_.find(content))];
    size_t begin = at, end = at + content.size();
    if (token.single_word && !is_whole_word(whole, begin, end)) {
      at = end - 1;
      continue;
    }
    match.next = end;
    while (token.left && begin > from) {
      const size_t before = character_before(whole, begin);
      if (!is_white_space(code_point_at(whole, before).value)) break;
      begin = before;
    }
    while (token.right && end < whole.size()) {
      const CodePoint c = code_point_at(whole, end);
      if (!is_white_space(c.value)) break;
      end += c.bytes;
    }
    // The white space that it would take in and the token itself belong to the token before.
    if (token.left && end <= from) {
      at = match.next - 1;
      continue;
    }
    match.begin = std::max(begin, from);
    match.end = end;
    match.id = token.id;
    return true;
  }
  return false;
}

}  // namespace weft::text
