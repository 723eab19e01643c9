// SPDX-License-Identifier: Apache-2.0
#include "data/unicode/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace weft::text {

void append_code_point(std::string& to, char32_t value) {
  if (value < 0x80) return to.push_back(static_cast<char>(value));
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(value), bytes);
  to.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
}

void append_replaced(std::string& to, std::string_view text, std::string_view what,
                     std::string_view with) {
  for (size_t at; (at = text.find(what)) != text.npos; text.remove_prefix(at + what.size())) {
    to.append(text, 0, at).append(with);
  }
  to += text;
}

Utf8Start utf8_start(std::string_view bytes) {
  using Kind = Utf8Start::Kind;
  const auto byte = [&](size_t i) { return static_cast<unsigned>(bytes[i] & 0xff); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {Kind::valid, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Kind::invalid, 1};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte excludes overlong forms, surrogates and values above U+10FFFF.
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Kind::incomplete, i};
    const bool fits = i == 1 ? byte(1) >= low && byte(1) <= high : (byte(i) & 0xC0) == 0x80;
    if (!fits) return {Kind::invalid, i};
  }
  return {Kind::valid, length};
}

size_t valid_prefix(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    uint64_t word = 0;
    while (at + sizeof word <= bytes.size()) {
      std::memcpy(&word, bytes.data() + at, sizeof word);
      if (word & 0x8080808080808080) break;
      at += sizeof word;
    }
    if (at == bytes.size()) break;
    const Utf8Start start = utf8_start(bytes.substr(at));
    if (start.kind != Utf8Start::Kind::valid) return at;
    at += start.bytes;
  }
  return at;
}

std::string repaired(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t valid = valid_prefix(bytes);
    text += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    text += kReplacement;
    bytes.remove_prefix(utf8_start(bytes).bytes);
  }
  return text;
}

struct CodePointRange {
  char32_t first, last;
};

// Made from the package tokenizers 0.23 and utf8proc 2.8: the code points of categories P, Mn and
// Cf that the package does not treat as such. A range may span code points of other categories.
static constexpr CodePointRange kNewRanges[] = {
    {0x61D, 0x61D},     {0x7FD, 0x7FD},     {0x890, 0x8E2},     {0x9FD, 0x9FE},
    {0xA76, 0xA76},     {0xAFA, 0xAFF},     {0xB55, 0xB55},     {0xC04, 0xC3C},
    {0xC77, 0xC77},     {0xC84, 0xC84},     {0xD00, 0xD00},     {0xD3B, 0xD3C},
    {0xD81, 0xD81},     {0xEBA, 0xEBA},     {0xECE, 0xECE},     {0x180F, 0x1886},
    {0x1ABF, 0x1ACE},   {0x1B7D, 0x1B7E},   {0x1DF6, 0x1DFB},   {0x2E43, 0x2E5D},
    {0xA82C, 0xA82C},   {0xA8C5, 0xA8C5},   {0xA8FF, 0xA8FF},   {0xA9BD, 0xA9BD},
    {0x10D24, 0x10F89}, {0x11070, 0x11074}, {0x110C2, 0x110CD}, {0x111CF, 0x111CF},
    {0x1123E, 0x11241}, {0x1133B, 0x1133B}, {0x11438, 0x1145E}, {0x11660, 0x1166C},
    {0x116B9, 0x116B9}, {0x1182F, 0x11FFF}, {0x12FF1, 0x13455}, {0x16E97, 0x16F4F},
    {0x16FE2, 0x16FE4}, {0x1CF00, 0x1CF46}, {0x1E000, 0x1E4EF}, {0x1E944, 0x1E95F}};

/// True when the category of the code point is one from `first` to `last`.
static bool is_category(char32_t value, utf8proc_category_t first, utf8proc_category_t last) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(value));
  return category >= first && category <= last;
}

/// The same for punctuation, nonspacing marks and format characters as of Unicode 8, by whose
/// categories BERT's normalizer and pre-tokenizer of the package `tokenizers` go.
static bool was_category(char32_t value, utf8proc_category_t first, utf8proc_category_t last) {
  if (!is_category(value, first, last)) return false;
  const auto* found = std::ranges::lower_bound(kNewRanges, value, {}, &CodePointRange::last);
  return found == std::end(kNewRanges) || found->first > value;
}

bool is_white_space(char32_t value) {
  return (value >= 9 && value <= 13) || value == 0x20 || value == 0x85 || value == 0xA0 ||
         value == 0x1680 || (value >= 0x2000 && value <= 0x200A) || value == 0x2028 ||
         value == 0x2029 || value == 0x202F || value == 0x205F || value == 0x3000;
}

bool is_control(char32_t value) {
  if (value == '\t' || value == '\n' || value == '\r') return false;
  return was_category(value, UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CO);
}

bool is_punctuation(char32_t value) {
  if (value < 0x80) {
    return (value >= 33 && value <= 47) || (value >= 58 && value <= 64) ||
           (value >= 91 && value <= 96) || (value >= 123 && value <= 126);
  }
  if (value == 0x166D || value == 0x111C9) return true;  // punctuation until Unicode 11 and 12
  return was_category(value, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}

bool is_nonspacing_mark(char32_t value) {
  return was_category(value, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MN);
}

bool is_mark(char32_t value) {
  return was_category(value, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}

bool is_chinese(char32_t value) {
  static constexpr CodePointRange ranges[] = {
      {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
      {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  return std::ranges::any_of(ranges, [&](const CodePointRange& range) {
    return value >= range.first && value <= range.last;
  });
}

bool is_word(char32_t value) {
  return is_category(value, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_NL) ||
         is_category(value, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PC) || value == 0x200C ||
         value == 0x200D;
}

void append_lower(std::string& to, char32_t value) {
  if (value < 0x80) {
    to.push_back(static_cast<char>(value >= 'A' && value <= 'Z' ? value + 32 : value));
  } else if (value == 0x130) {
    to += "i\xCC\x87";  // the only lower case of two code points
  } else {
    append_code_point(
        to, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(value))));
  }
}

bool is_letter(char32_t value) {
  return is_category(value, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO);
}

bool is_digit(char32_t value) {
  return is_category(value, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_ND) || value == 0xB2 ||
         value == 0xB3 || value == 0xB9 || value == 0x2070 ||
         (value >= 0x2074 && value <= 0x2079) || (value >= 0x2080 && value <= 0x2089);
}

bool is_printable(char32_t value) {
  return value == ' ' || !(is_category(value, UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_CO) ||
                           is_category(value, UTF8PROC_CATEGORY_CN, UTF8PROC_CATEGORY_CN));
}

bool append_upper(std::string& to, char32_t value, bool is_title) {
  // The characters of Unicode's SpecialCasing.txt.
  static constexpr CodePointRange kSeveral[] = {
      {0x149, 0x149},   {0x1F0, 0x1F0},   {0x390, 0x390},   {0x3B0, 0x3B0},  {0x587, 0x587},
      {0x1E96, 0x1E9A}, {0x1F50, 0x1F56}, {0x1F80, 0x1FFC}, {0xFB00, 0xFB17}};
  if (value < 0x80) {
    to.push_back(static_cast<char>(value >= 'a' && value <= 'z' ? value - 32 : value));
    return true;
  }
  if (value == 0xDF) {
    to += is_title ? "Ss" : "SS";
    return true;
  }
  const bool is_several = std::ranges::any_of(kSeveral, [&](const CodePointRange& range) {
    return value >= range.first && value <= range.last;
  });
  const auto code = static_cast<utf8proc_int32_t>(value);
  if (!is_several) {
    append_code_point(
        to, static_cast<char32_t>(is_title ? utf8proc_totitle(code) : utf8proc_toupper(code)));
  }
  return !is_several;
}

/// Printable bytes of Latin-1 stand for themselves; the others have the code points from 256 on.
static constexpr auto kBytesOfCharacters = [] {
  std::array<int, 324> table{};
  int others = 256;
  table.fill(-1);
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    table[static_cast<size_t>(printable ? byte : others++)] = byte;
  }
  return table;
}();

std::string characters_of_bytes(std::string_view bytes) {
  static constexpr auto kCharacters = [] {
    std::array<char32_t, 256> table{};
    for (char32_t c = 0; c < kBytesOfCharacters.size(); ++c) {
      if (kBytesOfCharacters[c] >= 0) table[static_cast<size_t>(kBytesOfCharacters[c])] = c;
    }
    return table;
  }();
  std::string to;
  to.reserve(bytes.size() + bytes.size() / 2);
  for (const char byte : bytes)
    append_code_point(to, kCharacters[static_cast<unsigned char>(byte)]);
  return to;
}

std::optional<std::string> bytes_of_characters(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const CodePoint c = code_point_at(token, at);
    if (c.value >= kBytesOfCharacters.size() || kBytesOfCharacters[c.value] < 0) return {};
    bytes.push_back(static_cast<char>(kBytesOfCharacters[c.value]));
    at += c.bytes;
  }
  return bytes;
}

}  // namespace weft::text
