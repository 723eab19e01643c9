// SPDX-License-Identifier: Apache-2.0
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <utility>

#include "data/tokenizer/json_part.h"
#include "data/tokenizer/piece_normalizer.h"
#include "data/tokenizer/unicode.h"
#include "weft/error.h"

namespace weft::text {

/// Whether the composed form of any text of such code points is the text itself: scripts without
/// combining marks, sorted ranges.
static bool is_composed(char32_t value) {
  static constexpr std::pair<char32_t, char32_t> ranges[] = {
      {0, 0x2FF},       {0x400, 0x482},   {0x2010, 0x2026}, {0x2190, 0x2328},
      {0x2500, 0x2ADB}, {0x3000, 0x3029}, {0x3041, 0x3096}, {0x309B, 0x312F},
      {0x3400, 0x9FFF}, {0xAC00, 0xD7A3}, {0xFF01, 0xFFDF}, {0x1F300, 0x1FAFF}};
  return std::ranges::any_of(
      ranges, [&](const auto& range) { return value >= range.first && value <= range.second; });
}

static bool is_composed(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (!is_composed(c.value)) return false;
    at += c.bytes;
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
  return {apply, keeps};
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

static Normalizer::Step replacing(const JsonPart& part) {
  const std::string content = part.text("content");
  return {[find = pattern_of(part), content](std::string_view text, size_t most) {
    std::string to;
    size_t from = 0;
    for (TextRange match{}; find(text, from, match); from = match.end) {
      to.append(text.substr(from, match.begin - from)).append(content);
      // Chains of replacements grow beyond all memory.
      if (to.size() <= most) continue;
      fail("tokenizer: the normalized text has ", to.size(), " bytes, expected at most ", most);
    }
    return to.append(text.substr(from));
  }};
}

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
    normalizer.add({[before = part.text("prepend")](std::string_view text, size_t) {
      return text.empty() ? std::string() : concat(before, text);
    }});
  } else if (type == "Strip") {
    const bool left = part.flag("strip_left", true), right = part.flag("strip_right", true);
    normalizer.add({[left, right](std::string_view text, size_t) {
      return std::string(stripped(text, left, right, is_white_space));
    }});
  } else if (type == "Replace") {
    normalizer.add(replacing(part));
  } else {
    part.at("type").refuse(kKnownType);
  }
}

std::string_view Normalizer::apply(std::string_view text, std::string& scratch) const {
  const size_t most = std::max(kLongestText, 64 * text.size());
  for (const Step& step : steps_) {
    if (step.keeps && step.keeps(text)) continue;
    scratch = step.apply(text, most);
    text = scratch;
  }
  return text;
}

}  // namespace weft::text
