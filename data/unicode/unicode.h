// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace weft::text {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
/// Represents a space in SentencePiece's pieces.
inline constexpr std::string_view kSpacePiece = "\xE2\x96\x81";  // U+2581

/// A code point and the number of its bytes in UTF-8.
struct CodePoint {
  char32_t value;
  size_t bytes;
};

/// The code point that begins at byte `at` of valid UTF-8.
inline CodePoint code_point_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(text[at + i] & 0xff); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (lead < 0xF0) return {(lead & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
  return {(lead & 7) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f), 4};
}

/// The start of the character that ends before byte `end`, which is above 0.
inline size_t character_before(std::string_view text, size_t end) {
  do {
    --end;
  } while ((text[end] & 0xC0) == 0x80);
  return end;
}

/// The text without the characters at its ends for which `is_removed` is true.
template <class IsRemoved>
std::string_view stripped(std::string_view text, bool left, bool right,
                          const IsRemoved& is_removed) {
  while (left && !text.empty()) {
    const CodePoint c = code_point_at(text, 0);
    if (!is_removed(c.value)) break;
    text.remove_prefix(c.bytes);
  }
  while (right && !text.empty()) {
    const size_t at = character_before(text, text.size());
    if (!is_removed(code_point_at(text, at).value)) break;
    text = text.substr(0, at);
  }
  return text;
}

void append_code_point(std::string& to, char32_t value);
/// Appends a text with all `what` in it, which is not empty, written as `with`.
void append_replaced(std::string& to, std::string_view text, std::string_view what,
                     std::string_view with);

/// The character at the start of bytes that should be UTF-8.
struct Utf8Start {
  enum class Kind { valid, invalid, incomplete };
  Kind kind;
  /// Bytes of the code point, of what one U+FFFD replaces (the longest prefix of a code point), or
  /// of the code point so far.
  size_t bytes;
};
/// `bytes` is not empty. The rules are those of Unicode 15, section 3.9, table 3-7.
Utf8Start utf8_start(std::string_view bytes);

/// The number of leading bytes that are valid UTF-8.
size_t valid_prefix(std::string_view bytes);

/// The text with each invalid sequence replaced by U+FFFD.
std::string repaired(std::string_view bytes);

// Classes of characters, as the tokenizers of BERT use them.
bool is_white_space(char32_t value);
/// Categories Cc, Cf, Co and Cs, except tab and line ends.
bool is_control(char32_t value);
/// ASCII symbols and category P.
bool is_punctuation(char32_t value);
/// Category Mn.
bool is_nonspacing_mark(char32_t value);
/// Categories Mn, Mc and Me.
bool is_mark(char32_t value);
bool is_chinese(char32_t value);
/// Letters, digits, marks and connecting punctuation.
bool is_word(char32_t value);
/// Category L.
bool is_letter(char32_t value);
/// Category Nd, and superscript and subscript digits.
bool is_digit(char32_t value);
/// Returns whether Python's repr writes the character unescaped.
bool is_printable(char32_t value);
/// Appends the lower case of `value`.
void append_lower(std::string& to, char32_t value);
/// Appends the upper or title case of `value`; false for a letter that becomes several.
bool append_upper(std::string& to, char32_t value, bool is_title = false);

/// The bytes that the characters of a byte-level token stand for (GPT-2's table), or nothing when a
/// character stands for none.
std::optional<std::string> bytes_of_characters(std::string_view token);
/// The characters that stand for the bytes.
std::string characters_of_bytes(std::string_view bytes);

}  // namespace weft::text
