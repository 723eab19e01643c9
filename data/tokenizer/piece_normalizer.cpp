// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/piece_normalizer.h"

#include "data/tokenizer/unicode.h"

namespace weft::text {

static constexpr std::string_view kEscapedSpace = "\xE2\x96\x81";  // U+2581

PieceNormalizer::PieceNormalizer(PieceNormalization rules) : rules_(std::move(rules)) {
  for (unsigned char byte = 0; byte < 128; ++byte) {
    keeps_[byte] = byte != ' ' && rules_.replacements.keeps_ascii(byte) &&
                   rules_.kept.child(0, static_cast<char>(byte)) == 0;
  }
}

size_t PieceNormalizer::kept_bytes(std::string_view text) const {
  size_t bytes = 0;
  while (bytes < text.size() && keeps_[static_cast<unsigned char>(text[bytes])]) ++bytes;
  // What follows may change the last one.
  return bytes < text.size() && (text[bytes] & 0x80) != 0 && bytes > 0 ? bytes - 1 : bytes;
}

/// What is written for the start of `text`.
Replacements::Match PieceNormalizer::prefix_of(std::string_view text) const {
  if (!rules_.kept.is_empty()) {
    if (const size_t kept = rules_.kept.longest(text)) return {text.substr(0, kept), kept};
  }
  if (rules_.replacements.may_begin(text[0])) {
    if (const auto match = rules_.replacements.match(text, true)) return *match;
  }
  const size_t bytes = code_point_at(text, 0).bytes;
  return {text.substr(0, bytes), bytes};
}

std::string PieceNormalizer::apply(std::string_view text) const {
  while (rules_.removes_spaces && !text.empty()) {
    const auto prefix = prefix_of(text);
    if (prefix.text != " ") break;
    text.remove_prefix(prefix.bytes);
  }
  std::string to;
  if (text.empty()) return to;
  to.reserve(text.size() + text.size() / 2);
  const std::string_view space = rules_.escapes_spaces ? kEscapedSpace : " ";
  if (rules_.adds_space && !rules_.space_is_suffix) to += space;
  bool after_space = rules_.removes_spaces;
  while (!text.empty()) {
    if (const size_t bytes = kept_bytes(text)) {
      to += text.substr(0, bytes);
      text.remove_prefix(bytes);
      after_space = false;
      continue;
    }
    auto [part, bytes] = prefix_of(text);
    while (after_space && part.starts_with(' ')) part.remove_prefix(1);
    for (const char byte : part) {
      if (byte == ' ') {
        to += space;
      } else {
        to += byte;
      }
    }
    if (!part.empty()) after_space = rules_.removes_spaces && part.ends_with(' ');
    text.remove_prefix(bytes);
  }
  while (rules_.removes_spaces && to.ends_with(space)) to.resize(to.size() - space.size());
  if (rules_.adds_space && rules_.space_is_suffix) to += space;
  return to;
}

}  // namespace weft::text
