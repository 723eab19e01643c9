// SPDX-License-Identifier: Apache-2.0
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "data/tokenizer/json_part.h"
#include "data/tokenizer/piece_normalizer.h"
#include "data/unicode/unicode.h"
#include "weft/error.h"

namespace weft::text {

/// True when all code points are of scripts without combining marks: the composed form of such a
/// text is the text itself.
static bool is_composed(std::string_view text) {
  static constexpr std::pair<char32_t, char32_t> ranges[] = {
      {0, 0x2FF},       {0x400, 0x482},   {0x2010, 0x2026}, {0x2190, 0x2328},
      {0x2500, 0x2ADB}, {0x3000, 0x3029}, {0x3041, 0x3096}, {0x309B, 0x312F},
      {0x3400, 0x9FFF}, {0xAC00, 0xD7A3}, {0xFF01, 0xFFDF}, {0x1F300, 0x1FAFF}};
  for (size_t at = 0; at < text.size();) {
    const auto [value, bytes] = code_point_at(text, at);
    const auto holds = [c = value](auto& range) { return c >= range.first && c <= range.second; };
    if (std::ranges::none_of(ranges, holds)) return false;
    at += bytes;
  }
  return true;
}

static bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c & 0x80) == 0; });
}

/// Appends the text in the form of Unicode that utf8proc's options say.
static void append_form(std::string& to, std::string_view text, int options) {
  utf8proc_uint8_t* made = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &made,
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | options));
  if (size < 0) fail_call("utf8proc_map", utf8proc_errmsg(size));
  to.append(reinterpret_cast<const char*>(made), static_cast<size_t>(size));
  std::free(made);
}

/// Brings text into such a form.
static Normalizer::Step form_step(int options, bool (*keeps)(std::string_view)) {
  const auto apply = [options](std::string_view text, size_t) {
    // It has no other form and composes with nothing, but utf8proc 2.8 drops it after a syllable.
    static constexpr std::string_view kDropped = "\u11A7";
    std::string to;
    for (size_t at; (at = text.find(kDropped)) != text.npos;) {
      append_form(to, text.substr(0, at), options);
      to += kDropped;
      text.remove_prefix(at + kDropped.size());
    }
    append_form(to, text, options);
    return to;
  };
  return {apply, keeps};
}

/// Passes each code point to `write(to, code point)`.
template <class Write>
static Normalizer::Step rewriting(Write write, bool (*keeps)(std::string_view) = nullptr) {
  const auto apply = [write](std::string_view text, size_t) {
    std::string to;
    to.reserve(text.size() + text.size() / 8);
    for (size_t at = 0; at < text.size();) {
      const CodePoint c = code_point_at(text, at);
      write(to, c.value);
      at += c.bytes;
    }
    return to;
  };
  const auto moves = [write](std::string_view text) {
    std::string first;
    if (!text.empty()) write(first, code_point_at(text, 0).value);
    return first.empty();
  };
  return {apply, keeps, moves};
}

/// Removes the code points of a class, which has none of ASCII.
static Normalizer::Step removing(bool (*is_removed)(char32_t)) {
  const auto write = [is_removed](std::string& to, char32_t value) {
    if (!is_removed(value)) append_code_point(to, value);
  };
  return rewriting(write, is_ascii);
}

static constexpr auto write_clean = [](std::string& to, char32_t value) {
  if (value == 0 || value == 0xFFFD || is_control(value)) return;
  append_code_point(to, is_white_space(value) ? U' ' : value);
};

static constexpr auto write_spaced = [](std::string& to, char32_t value) {
  const bool spaced = is_chinese(value);
  if (spaced) to += ' ';
  append_code_point(to, value);
  if (spaced) to += ' ';
};

/// The steps that have no options, by their names in tokenizer.json.
static const std::map<std::string_view, Normalizer::Step>& plain_steps() {
  static const std::map<std::string_view, Normalizer::Step> steps = {
      {"NFC", form_step(UTF8PROC_COMPOSE, is_composed)},
      {"NFD", form_step(UTF8PROC_DECOMPOSE, is_ascii)},
      {"NFKC", form_step(UTF8PROC_COMPOSE | UTF8PROC_COMPAT, is_ascii)},
      {"NFKD", form_step(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, is_ascii)},
      {"Lowercase", rewriting(append_lower)},
      {"ByteLevel", {[](std::string_view text, size_t) { return characters_of_bytes(text); }}},
      {"StripAccents", removing(is_mark)}};
  return steps;
}

static void add_bert_normalizer(const JsonPart& part, Normalizer& normalizer) {
  const bool lowercase = part.flag("lowercase", true);
  if (part.flag("clean_text", true)) normalizer.add(rewriting(write_clean));
  if (part.flag("handle_chinese_chars", true)) normalizer.add(rewriting(write_spaced, is_ascii));
  if (part.flag("strip_accents", lowercase)) {
    normalizer.add(plain_steps().at("NFD"));
    normalizer.add(removing(is_nonspacing_mark));
  }
  if (lowercase) normalizer.add(plain_steps().at("Lowercase"));
}

static constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The bytes that the text encodes by RFC 4648, section 4; nothing when it is not such a text.
static std::optional<std::string> bytes_of_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  for (int padding = 0; padding < 2 && text.ends_with('='); ++padding) text.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == kDigits.npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

static Normalizer::Step precompiled_step(const JsonPart& part) {
  const JsonPart table = part.at("precompiled_charsmap");
  const auto bytes = bytes_of_base64(table.text());
  if (!bytes) table.refuse("a table of SentencePiece in base64");
  const Replacements replacements(concat(part.what(), ": ", table.place()), *bytes);
  return {[replacements](std::string_view text, size_t) {
    return replacements.applied_by_graphemes(text);
  }};
}

static Normalizer::Step replacing(const Find& find, const std::string& content) {
  const auto moves = [find, content](std::string_view text) {
    TextRange match{};
    return find(text, 0, match) && match.begin == 0 &&
           (content.empty() || match.end > code_point_at(text, 0).bytes);
  };
  const auto apply = [find, content](std::string_view text, size_t most) {
    std::string to;
    size_t from = 0;
    for (TextRange match{}; find(text, from, match); from = match.end) {
      to.append(text.substr(from, match.begin - from)).append(content);
      // Chains of replacements grow beyond all memory.
      if (to.size() <= most) continue;
      fail("tokenizer: the normalized text has ", to.size(), " bytes, expected at most ", most);
    }
    return to.append(text.substr(from));
  };
  return {apply, nullptr, moves};
}

/// The rules "nmt" of SentencePiece remove some characters and make others spaces.
static constexpr const char* kNmtRemoved = R"([\x01-\x08\x0b\x0e-\x1f\x7f\x{8f}\x{9f}])";
static constexpr const char* kNmtSpaces =
    R"([\x09\x0a\x0c\x0d\x{1680}\x{200b}-\x{200f}\x{2028}\x{2029}\x{2581}\x{feff}\x{fffd}])";

void add_normalizer(const JsonPart& part, Normalizer& normalizer) {
  const std::string type = part.text("type");
  check_steps(part, normalizer.steps());
  const auto plain = plain_steps().find(type);
  if (type == "Sequence") {
    for (const JsonPart& step : part.at("normalizers").elements()) add_normalizer(step, normalizer);
  } else if (plain != plain_steps().end()) {
    normalizer.add(plain->second);
  } else if (type == "BertNormalizer") {
    add_bert_normalizer(part, normalizer);
  } else if (type == "Precompiled") {
    normalizer.add(precompiled_step(part));
  } else if (type == "Prepend") {
    if (part.text("prepend").empty()) part.at("prepend").refuse("a text that is not empty");
    normalizer.add({[before = part.text("prepend")](std::string_view text, size_t) {
      return text.empty() ? std::string() : concat(before, text);
    }});
  } else if (type == "Strip") {
    const bool left = part.flag("strip_left", true), right = part.flag("strip_right", true);
    const auto strip = [left, right](std::string_view text, size_t) {
      return std::string(stripped(text, left, right, is_white_space));
    };
    normalizer.add({strip, nullptr, [left](std::string_view text) {
                      return left && !text.empty() && is_white_space(code_point_at(text, 0).value);
                    }});
  } else if (type == "Replace") {
    normalizer.add(replacing(pattern_of(part), part.text("content")));
  } else if (type == "Nmt") {
    normalizer.add(replacing(regex_finder(part.what(), kNmtRemoved), ""));
    normalizer.add(replacing(regex_finder(part.what(), kNmtSpaces), " "));
  } else {
    part.at("type").refuse(kKnownType);
  }
}

std::string_view Normalizer::apply(std::string_view text, std::string& scratch,
                                   bool& is_first) const {
  const size_t most = std::max(kLongestText, 64 * text.size());
  for (const Step& step : steps_) {
    if (step.keeps && step.keeps(text)) continue;
    is_first = is_first && !(step.moves && step.moves(text));
    scratch = step.apply(text, most);
    text = scratch;
  }
  return text;
}

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

std::string Replacements::applied_by_graphemes(std::string_view text) const {
  std::string to;
  to.reserve(text.size() + text.size() / 8);
  for (size_t at = 0; at < text.size();) {
    const size_t end = at + grapheme_bytes(text, at);
    if (end - at <= kLongestGrapheme) {
      if (const auto found = match(text.substr(at, end - at), false)) {
        to += found->text;
        at = end;
      }
    }
    while (at < end) {
      const std::string_view character = text.substr(at, code_point_at(text, at).bytes);
      const auto found = match(character, false);
      to += found ? found->text : character;
      at += character.size();
    }
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
  // A mark after the last byte may change it.
  return bytes < text.size() && (text[bytes] & 0x80) != 0 && bytes > 0 ? bytes - 1 : bytes;
}

/// Returns the replacement for the start of `text`.
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
  while (rules_.removes_spaces && to.ends_with(space)) to.erase(to.size() - space.size());
  if (rules_.adds_space && rules_.space_is_suffix) to += space;
  return to;
}

}  // namespace weft::text
