// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/piece_normalizer.h"

#include <utf8proc.h>

#include <cstring>

#include "data/tokenizer/unicode.h"
#include "weft/error.h"

namespace weft::text {

/// The longest grapheme that the package tokenizers replaces whole.
static constexpr size_t kLongestGrapheme = 5;

static size_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }
static uint32_t label_of(uint32_t unit) { return unit & 0x800000FF; }
static bool has_value(uint32_t unit) { return (unit & 0x100) != 0; }

Replacements::Replacements(const std::string& what, std::string_view table) {
  uint32_t size = 0;
  const bool has_size = table.size() > sizeof size;
  if (has_size) std::memcpy(&size, table.data(), sizeof size);
  if (!has_size || size < sizeof size || size > table.size() - sizeof size ||
      table.back() != '\0') {
    fail(what, ": the table of replacements has ", table.size(),
         " bytes, expected as many as it says");
  }
  units_.resize(size / sizeof size);
  std::memcpy(units_.data(), table.data() + sizeof size, units_.size() * sizeof size);
  texts_ = table.substr(sizeof size + size);
  if (const size_t valid = valid_prefix(texts_); valid < texts_.size()) {
    fail(what, ": byte ", valid, " of the texts of replacements is ", texts_[valid] & 0xff,
         ", expected UTF-8");
  }
  for (size_t begin = 0, end; begin < texts_.size(); begin = end + 1) {
    end = texts_.find('\0', begin);
    if (end - begin <= kLongestPiece) continue;
    fail(what, ": a text of replacements has ", end - begin, " bytes, expected at most ",
         kLongestPiece);
  }
}

uint32_t Replacements::child(size_t& at, unsigned char byte) const {
  at ^= byte;
  const uint32_t found = unit(at);
  if (byte == 0 || label_of(found) != byte) return 0;
  at ^= offset_of(found);
  return found;
}

bool Replacements::keeps_ascii(unsigned char byte) const {
  size_t at = offset_of(unit(0));
  const uint32_t node = child(at, byte);
  if (has_value(node)) return false;
  for (unsigned char next = 1; node != 0 && next < 128; ++next) {
    if (size_t after = at; child(after, next) != 0) return false;
  }
  return true;
}

std::optional<Replacements::Match> Replacements::match(std::string_view text,
                                                       bool is_longest) const {
  std::optional<Match> found;
  size_t at = offset_of(unit(0));
  for (size_t end = 1; end <= text.size(); ++end) {
    const uint32_t node = child(at, static_cast<unsigned char>(text[end - 1]));
    if (node == 0) break;
    if (!has_value(node)) continue;
    const size_t begin = unit(at) & 0x7FFFFFFF;
    // In a damaged table a value may point into a text, and a match end inside a character.
    const bool begins_text = begin < texts_.size() && (begin == 0 || texts_[begin - 1] == '\0');
    const bool ends_character = end == text.size() || (text[end] & 0xC0) != 0x80;
    if (!begins_text || !ends_character) continue;
    found = Match{texts_.data() + begin, end};
    if (!is_longest) break;
  }
  return found;
}

/// The bytes of the grapheme at byte `at`.
static size_t grapheme_bytes(std::string_view text, size_t at) {
  const size_t begin = at;
  utf8proc_int32_t state = 0;
  CodePoint c = code_point_at(text, at);
  while (at += c.bytes, at < text.size()) {
    const CodePoint next = code_point_at(text, at);
    // Characters below the combining marks join in a line end alone.
    const bool is_plain = c.value < 0x300 && next.value < 0x300 && c.value != '\r';
    if (is_plain ||
        utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.value),
                                         static_cast<utf8proc_int32_t>(next.value), &state)) {
      break;
    }
    c = next;
  }
  return at - begin;
}

void Replacements::append(std::string& to, std::string_view grapheme) const {
  if (grapheme.size() <= kLongestGrapheme) {
    if (const auto found = match(grapheme, false)) {
      to += found->text;
      return;
    }
  }
  for (size_t at = 0; at < grapheme.size();) {
    const std::string_view character = grapheme.substr(at, code_point_at(grapheme, at).bytes);
    const auto found = match(character, false);
    to += found ? found->text : character;
    at += character.size();
  }
}

std::string Replacements::applied_by_graphemes(std::string_view text) const {
  std::string to;
  to.reserve(text.size() + text.size() / 8);
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = grapheme_bytes(text, at);
    append(to, text.substr(at, bytes));
    at += bytes;
  }
  return to;
}

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
  if (const size_t kept = rules_.kept.longest(text)) return {text.substr(0, kept), kept};
  if (const auto match = rules_.replacements.match(text, true)) return *match;
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
  const std::string_view space = rules_.escapes_spaces ? kSpacePiece : " ";
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
    append_replaced(to, part, " ", space);
    if (!part.empty()) after_space = rules_.removes_spaces && part.ends_with(' ');
    text.remove_prefix(bytes);
  }
  while (rules_.removes_spaces && to.ends_with(space)) to.resize(to.size() - space.size());
  if (rules_.adds_space && rules_.space_is_suffix) to += space;
  return to;
}

}  // namespace weft::text
