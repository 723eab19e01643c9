// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/splitter.h"

namespace weft::text {

std::string_view Splitter::prepared(const Split& split, std::string_view piece, bool is_first,
                                    std::string& changed) {
  if (piece.empty()) return piece;
  if (!split.space.empty()) {
    changed.reserve(piece.size() + piece.size() / 2);
    for (const char c : piece) {
      if (c == ' ') {
        changed += split.space;
      } else {
        changed += c;
      }
    }
    piece = changed;
  }
  const bool wanted =
      split.when == Split::Prefix::always || (split.when == Split::Prefix::first && is_first);
  if (!wanted || piece.starts_with(split.prefix)) return piece;
  changed = split.prefix + std::string(piece);
  return changed;
}

bool Splitter::joins(Split::Behavior behavior, bool is_match, bool follows_match) {
  switch (behavior) {
    case Split::Behavior::with_previous: return is_match && !follows_match;
    case Split::Behavior::with_next: return follows_match && !is_match;
    case Split::Behavior::contiguous: return is_match == follows_match;
    default: return false;
  }
}

/// Finds the first character from `from` on that belongs to a class.
static bool find_character(std::string_view piece, size_t from, bool (*belongs)(char32_t),
                           TextRange& match) {
  while (from < piece.size()) {
    const CodePoint c = code_point_at(piece, from);
    if (belongs(c.value)) {
      match = {from, from + c.bytes};
      return true;
    }
    from += c.bytes;
  }
  return false;
}

bool Splitter::find(const Split& split, std::string_view piece, size_t from, TextRange& match) {
  switch (split.by) {
    case Split::By::regex: return split.regex->find(piece, from, match);
    case Split::By::text: {
      const size_t at = piece.find(split.text, from);
      match = {at, at + split.text.size()};
      return at != piece.npos;
    }
    case Split::By::white_space: return find_character(piece, from, is_white_space, match);
    case Split::By::punctuation: return find_character(piece, from, is_punctuation, match);
    case Split::By::nothing: break;
  }
  return false;
}

}  // namespace weft::text
