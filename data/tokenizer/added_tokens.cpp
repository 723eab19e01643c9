// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/added_tokens.h"

#include <algorithm>

#include "data/tokenizer/unicode.h"

namespace weft::text {

void AddedTokens::add(const AddedToken& token) {
  if (token.content.empty()) return;
  starts_[static_cast<unsigned char>(token.content[0])] = true;
  uint32_t node = 0;
  for (const char c : token.content) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t child = nodes_[node].child;
    while (child != 0 && nodes_[child].byte != byte) child = nodes_[child].sibling;
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({byte, 0, nodes_[node].child, -1});
      nodes_[node].child = child;
    }
    node = child;
  }
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

int32_t AddedTokens::longest_at(std::string_view whole, size_t at) const {
  int32_t longest = -1;
  uint32_t node = 0;
  for (; at < whole.size(); ++at) {
    const auto byte = static_cast<unsigned char>(whole[at]);
    node = nodes_[node].child;
    while (node != 0 && nodes_[node].byte != byte) node = nodes_[node].sibling;
    if (node == 0) break;
    if (nodes_[node].token >= 0) longest = nodes_[node].token;
  }
  return longest;
}

bool AddedTokens::is_whole_word(std::string_view whole, size_t begin, size_t end) {
  if (begin > 0 && is_word(code_point_at(whole, character_before(whole, begin)).value)) {
    return false;
  }
  return end == whole.size() || !is_word(code_point_at(whole, end).value);
}

bool AddedTokens::find(std::string_view whole, size_t at, size_t from, Match& match) const {
  for (; at < whole.size(); ++at) {
    if (!starts_[static_cast<unsigned char>(whole[at])]) continue;
    const int32_t index = longest_at(whole, at);
    if (index < 0) continue;
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = at, end = at + token.content.size();
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
