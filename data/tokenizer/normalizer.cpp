// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include "data/tokenizer/unicode.h"
#include "weft/error.h"

namespace weft::text {

using Kind = Normalization::Kind;

/// Whether the composed form of any text of such code points is the text itself: scripts without
/// combining marks, sorted ranges.
static bool is_composed(char32_t value) {
  if (value < 0x300) return true;
  if (value >= 0x400 && value < 0x483) return true;
  if (value >= 0x2010 && value < 0x2027) return true;
  if (value >= 0x2190 && value < 0x2329) return true;
  if (value >= 0x2500 && value < 0x2ADC) return true;
  if (value >= 0x3000 && value < 0x302A) return true;
  if (value >= 0x3041 && value < 0x3097) return true;
  if (value >= 0x309B && value < 0x3130) return true;
  if (value >= 0x3400 && value < 0xA000) return true;
  if (value >= 0xAC00 && value < 0xD7A4) return true;
  if (value >= 0xFF01 && value < 0xFFE0) return true;
  return value >= 0x1F300 && value < 0x1FB00;
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

/// Appends the text in one of Unicode's four forms.
static void append_form(std::string& to, std::string_view text, Kind kind) {
  const bool composes = kind == Kind::nfc || kind == Kind::nfkc;
  int options = UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (kind == Kind::nfkc || kind == Kind::nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* made = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &made,
                                 static_cast<utf8proc_option_t>(options));
  if (size < 0) fail_call("utf8proc_map", utf8proc_errmsg(size));
  to.append(reinterpret_cast<const char*>(made), static_cast<size_t>(size));
  std::free(made);
}

/// The text in one of Unicode's four forms.
static std::string in_form(std::string_view text, Kind kind) {
  // It has no other form and composes with nothing, but utf8proc 2.8 drops it after a syllable.
  static constexpr std::string_view kDropped = "\u11A7";
  std::string to;
  for (size_t at; (at = text.find(kDropped)) != text.npos;) {
    append_form(to, text.substr(0, at), kind);
    to += kDropped;
    text.remove_prefix(at + kDropped.size());
  }
  append_form(to, text, kind);
  return to;
}

/// The text with each code point passed to `write(to, code point)`.
template <class Write> static std::string rewritten(std::string_view text, const Write& write) {
  std::string to;
  to.reserve(text.size() + text.size() / 8);
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    write(to, c.value);
    at += c.bytes;
  }
  return to;
}

/// The text with its matches replaced; chains of replacements grow beyond all memory, so that it
/// has `most` bytes at most.
static std::string replaced(std::string_view text, const Normalization& step, size_t most) {
  std::string to;
  size_t from = 0;
  const auto replace = [&](TextRange match) {
    to.append(text.substr(from, match.begin - from)).append(step.content);
    if (to.size() > most) {
      fail("tokenizer: the normalized text has ", to.size(), " bytes, expected at most ", most);
    }
    from = match.end;
  };
  if (step.regex) {
    TextRange match{};
    while (step.regex->find(text, from, match)) {
      replace(match);
    }
  } else {
    for (size_t at; (at = text.find(step.pattern, from)) != text.npos;) {
      replace({at, at + step.pattern.size()});
    }
  }
  return to.append(text.substr(from));
}

static void write_clean(std::string& to, char32_t value) {
  if (value == 0 || value == 0xFFFD || is_control(value)) return;
  append_code_point(to, is_white_space(value) ? U' ' : value);
}

static void write_spaced(std::string& to, char32_t value) {
  const bool spaced = is_chinese(value);
  if (spaced) to += ' ';
  append_code_point(to, value);
  if (spaced) to += ' ';
}

static void write_unaccented(std::string& to, char32_t value) {
  if (!is_nonspacing_mark(value)) append_code_point(to, value);
}

static void write_unmarked(std::string& to, char32_t value) {
  if (!is_mark(value)) append_code_point(to, value);
}

static std::string step_applied(const Normalization& step, std::string_view text, size_t most) {
  switch (step.kind) {
    case Kind::nfc:
    case Kind::nfd:
    case Kind::nfkc:
    case Kind::nfkd: return in_form(text, step.kind);
    case Kind::lowercase: return rewritten(text, append_lower);
    case Kind::strip_accents: return rewritten(text, write_unaccented);
    case Kind::strip_marks: return rewritten(text, write_unmarked);
    case Kind::prepend: return text.empty() ? std::string() : concat(step.content, text);
    case Kind::replace: return replaced(text, step, most);
    case Kind::strip: return std::string(stripped(text, step.left, step.right, is_white_space));
    case Kind::clean_text: return rewritten(text, write_clean);
    case Kind::space_chinese: return rewritten(text, write_spaced);
    case Kind::pieces: return step.pieces->apply(text);
    case Kind::graphemes: return step.replacements->applied_by_graphemes(text);
  }
  return std::string(text);
}

static bool changes_nothing(const Normalization& step, std::string_view text) {
  switch (step.kind) {
    case Kind::nfc: return is_composed(text);
    case Kind::nfd:
    case Kind::nfkc:
    case Kind::nfkd:
    case Kind::strip_accents:
    case Kind::strip_marks:
    case Kind::space_chinese: return is_ascii(text);
    default: return false;
  }
}

std::string_view Normalizer::apply(std::string_view text, std::string& scratch) const {
  const size_t most = std::max(kLongestText, 64 * text.size());
  for (const Normalization& step : steps_) {
    if (changes_nothing(step, text)) continue;
    scratch = step_applied(step, text, most);
    text = scratch;
  }
  return text;
}

}  // namespace weft::text
