// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "data/tokenizer/json_part.h"
#include "data/unicode/unicode.h"
#include "weft/error.h"
#include "weft/export.h"

namespace weft::text {

/// Memory that a search writes to; one for each thread.
struct RegexScratch : NotCopied {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(size_t{1} << 15, size_t{1} << 22, nullptr);
  RegexScratch() {
    if (!data || !context || !stack) fail_call("pcre2_match_data_create", "no memory");
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~RegexScratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

/// The members of Oniguruma's \w within a class. Alone it also matches some fractions and
/// superscripts.
static constexpr const char* kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
static constexpr const char* kWordAlone = "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

/// Oniguruma's classes within classes, such as [:alpha:], in PCRE2's syntax.
static constexpr std::pair<std::string_view, const char*> kPosixClasses[] = {
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"alpha", "\\p{Alphabetic}"},
    {"ascii", "\\x00-\\x7f"},
    {"cntrl", "\\p{Cc}"},
    {"digit", "\\p{Nd}"},
    {"lower", "\\p{Lowercase}"},
    {"punct", "\\p{P}\\p{S}"},
    {"space", "\\p{White_Space}"},
    {"upper", "\\p{Uppercase}"},
    {"word", kWord},
    {"xdigit", "0-9a-fA-F"}};

/// Writes a pattern of Oniguruma's in PCRE2's syntax; what would match something else is refused.
class PatternWriter {
 public:
  PatternWriter(const std::string& what, std::string_view pattern)
      : what_(what), pattern_(pattern) {}

  std::string text() {
    if (pattern_.find("&&") != pattern_.npos) refuse("an intersection of classes (&&)");
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\' && at_ + 1 < pattern_.size()) {
        write_escape();
      } else if (in_class_) {
        write_in_class(c);
      } else if (c == '[') {
        begin_class();
      } else if (c == '(') {
        write_group();
      } else {
        keep(1);
      }
    }
    return std::move(text_);
  }

 private:
  [[noreturn]] void refuse(std::string_view thing) const {
    fail(what_, ": the pattern is ", in_quotes(std::string(pattern_)), ", expected none with ",
         thing);
  }
  std::string_view rest() const { return pattern_.substr(at_); }
  void keep(size_t bytes) {
    text_ += pattern_.substr(at_, bytes);
    at_ += bytes;
  }

  /// Oniguruma's \s does not match U+180E, PCRE2's does; its \h is a hexadecimal digit; its \w
  /// matches marks.
  void write_escape() {
    const char next = pattern_[at_ + 1];
    if (next == 'h' || next == 'H') refuse("\\h or \\H; write [0-9a-fA-F]");
    if (next == 'b' || next == 'B') refuse("\\b or \\B");
    if (next == 'W' && in_class_) refuse("\\W in a class; write a class that begins with ^");
    if (next == 's' || next == 'S') {
      text_ += next == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
    } else if (next == 'w' && in_class_) {
      text_ += kWord;
    } else if (next == 'w' || next == 'W') {
      text_ += concat(next == 'w' ? "[" : "[^", kWord, kWordAlone, ']');
    } else {
      return keep(2);
    }
    at_ += 2;
  }

  void begin_class() {
    in_class_ = true;
    keep(1);
    if (rest().starts_with('^')) keep(1);
    // A bracket at the start is a character.
    if (rest().starts_with(']')) keep(1);
  }

  void write_in_class(char c) {
    if (c == ']') in_class_ = false;
    c == '[' ? write_posix_class() : keep(1);
  }

  /// Oniguruma begins a class inside the class, PCRE2 has the character.
  void write_posix_class() {
    for (const auto& [name, members] : kPosixClasses) {
      if (!rest().starts_with(concat("[:", name, ":]"))) continue;
      text_ += members;
      at_ += name.size() + 4;
      return;
    }
    if (!rest().starts_with("[:")) refuse("a class inside a class; write \\[ for the character");
    refuse(rest().substr(0, rest().find(']') + 1));
  }

  /// Oniguruma's option m lets the dot match line ends, as PCRE2's s does.
  void write_group() {
    const std::string_view text = rest();
    size_t end = 2;
    while (end < text.size() && (text[end] == '-' || (text[end] >= 'a' && text[end] <= 'z'))) ++end;
    const bool has_options = text.starts_with("(?") && end > 2 && end < text.size() &&
                             (text[end] == ':' || text[end] == ')');
    if (!has_options) return keep(1);
    for (const char c : text.substr(0, end)) text_ += c == 'm' ? 's' : c;
    at_ += end;
  }

  const std::string& what_;
  std::string_view pattern_;
  std::string text_;
  size_t at_ = 0;
  bool in_class_ = false;
};

static std::string regex_error(int code) {
  char reason[200];
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(reason), sizeof reason);
  return reason;
}

Find regex_finder(const std::string& what, const std::string& pattern) {
  static constexpr size_t kLongest = 10000;
  if (pattern.size() > kLongest) {
    fail(what, ": a pattern has ", pattern.size(), " bytes, expected at most ", kLongest);
  }
  const std::string written = PatternWriter(what, pattern).text();
  int problem = 0;
  size_t offset = 0;
  // The anchors ^ and $ of Oniguruma are those of lines.
  pcre2_code* compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(written.data()), written.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_MULTILINE, &problem,
                    &offset, nullptr);
  if (!compiled) {
    fail(what, ": the pattern is ", in_quotes(pattern), ", expected a regular expression; ",
         regex_error(problem));
  }
  const std::shared_ptr<pcre2_code> code(compiled, pcre2_code_free);
  uint32_t matches_empty = 0;
  pcre2_pattern_info(compiled, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    fail(what, ": the pattern is ", in_quotes(pattern), ", expected one that cannot match nothing");
  }
  // Without the just-in-time compiler, pcre2_match interprets the pattern.
  pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
  return [code, of = concat("the pattern ", in_quotes(pattern), " of ", what)](
             std::string_view text, size_t from, TextRange& match) {
    thread_local RegexScratch scratch;
    while (from < text.size()) {
      const int result =
          pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                      PCRE2_NO_UTF_CHECK, scratch.data, scratch.context);
      if (result == PCRE2_ERROR_NOMATCH) return false;
      if (result < 0) fail_call("pcre2_match", of, ": ", regex_error(result));
      const size_t* bounds = pcre2_get_ovector_pointer(scratch.data);
      match = {bounds[0], bounds[1]};
      if (match.begin < match.end) return true;
      if (match.begin >= text.size()) return false;
      from = match.begin + code_point_at(text, match.begin).bytes;
    }
    return false;
  };
}

std::string_view Splitter::prepared(const Split& split, std::string_view piece, bool is_first,
                                    std::string& changed) {
  if (piece.empty()) return piece;
  if (split.spells_bytes) return changed = characters_of_bytes(piece);
  if (!split.space.empty()) {
    changed.reserve(piece.size() + piece.size() / 2);
    append_replaced(changed, piece, " ", split.space);
    piece = changed;
  }
  const bool wanted =
      split.when == Split::Prefix::always || (split.when == Split::Prefix::first && is_first);
  if (!wanted || piece.starts_with(split.prefix)) return piece;
  changed = split.prefix + std::string(piece);
  return changed;
}

bool Splitter::needs_places(bool is_changed) const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (is_changed && i > 0 && steps_[i].when == Split::Prefix::first) return true;
    is_changed |= steps_[i].when != Split::Prefix::never || steps_[i].spells_bytes;
  }
  return false;
}

bool Splitter::joins(Split::Behavior behavior, bool is_match, bool follows_match) {
  switch (behavior) {
    case Split::Behavior::with_previous: return is_match && !follows_match;
    case Split::Behavior::with_next: return follows_match && !is_match;
    case Split::Behavior::contiguous: return is_match == follows_match;
    default: return false;
  }
}

/// Finds the first character of a class.
static Find finder_of(bool (*belongs)(char32_t)) {
  return [belongs](std::string_view text, size_t from, TextRange& match) {
    CodePoint c{};
    for (; from < text.size(); from += c.bytes) {
      c = code_point_at(text, from);
      if (!belongs(c.value)) continue;
      match = {from, from + c.bytes};
      return true;
    }
    return false;
  };
}

static Find finder_of(const std::string& part) {
  return [part](std::string_view text, size_t from, TextRange& match) {
    const size_t at = text.find(part, from);
    match = {at, at + part.size()};
    return at != text.npos;
  };
}

Find pattern_of(const JsonPart& part) {
  const JsonPart pattern = part.at("pattern");
  if (pattern.has("Regex")) {
    return regex_finder(concat(part.what(), ": ", pattern.place()), pattern.text("Regex"));
  }
  if (pattern.text("String").empty()) pattern.refuse("a text that is not empty");
  return finder_of(pattern.text("String"));
}

/// GPT-2's words.
static constexpr const char* kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
/// Words and punctuation, as Rust's \w+|[^\w\s]+ matches them.
static constexpr const char* kWordsOrSymbols =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+)"
    R"(|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\s]+)";

static Split::Behavior behavior_of(const JsonPart& part) {
  // Indexed by Split::Behavior.
  static constexpr std::string_view kNames[] = {"Removed", "Isolated", "MergedWithPrevious",
                                                "MergedWithNext", "Contiguous"};
  const auto* found = std::ranges::find(kNames, part.text("behavior"));
  if (found != std::end(kNames)) return static_cast<Split::Behavior>(found - kNames);
  part.at("behavior").refuse("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

Split::Prefix prefix_of(const JsonPart& part) {
  using Prefix = Split::Prefix;
  const std::string otherwise = part.flag("add_prefix_space", true) ? "always" : "never";
  const std::string name = part.text("prepend_scheme", otherwise);
  if (part.has("prepend_scheme") && otherwise == "never" && name != otherwise) {
    part.at("prepend_scheme").refuse("never with add_prefix_space false");
  }
  if (name == "always") return Prefix::always;
  if (name == "first") return Prefix::first;
  if (name == "never") return Prefix::never;
  part.at("prepend_scheme").refuse("always, first or never");
}

static void add_byte_level(const JsonPart& part, Splitter& splitter) {
  if (part.flag("add_prefix_space", true))
    splitter.add({.when = Split::Prefix::always, .prefix = " "});
  if (part.flag("use_regex", true)) {
    splitter.add({.find = regex_finder(part.what(), kGpt2Words)});
  }
}

std::string character_of(const JsonPart& part, const char* key) {
  const std::string& text = part.at(key).text();
  if (text.empty() || code_point_at(text, 0).bytes != text.size())
    part.at(key).refuse("a character");
  return text;
}

static Split metaspace(const JsonPart& part) {
  const std::string replacement = character_of(part, "replacement");
  Split step{.when = prefix_of(part), .prefix = replacement, .space = replacement};
  if (part.flag("split", true)) {
    step.find = finder_of(replacement);
    step.behavior = Split::Behavior::with_next;
  }
  return step;
}

bool add_pre_tokenizer(const JsonPart& part, Splitter& splitter) {
  const std::string type = part.text("type");
  check_steps(part, splitter.steps());
  if (type == "Sequence") {
    bool by_bytes = false;
    for (const JsonPart& step : part.at("pretokenizers").elements()) {
      if (by_bytes) splitter.add({.spells_bytes = true});
      by_bytes = add_pre_tokenizer(step, splitter);
    }
    return by_bytes;
  }
  if (type == "ByteLevel") {
    add_byte_level(part, splitter);
    return true;
  }
  using Behavior = Split::Behavior;
  Split step;
  if (type == "Split") {
    step = {.behavior = behavior_of(part), .inverted = part.flag("invert", false)};
    step.find = pattern_of(part);
  } else if (type == "Metaspace") {
    step = metaspace(part);
  } else if (type == "BertPreTokenizer" || type == "WhitespaceSplit") {
    step = {.find = finder_of(is_white_space), .behavior = Behavior::removed};
  } else if (type == "Whitespace") {
    step = {.find = regex_finder(part.what(), kWordsOrSymbols),
            .behavior = Behavior::removed,
            .inverted = true};
  } else if (type == "Punctuation") {
    step = {.find = finder_of(is_punctuation)};
    if (part.has("behavior")) step.behavior = behavior_of(part);
  } else if (type == "Digits") {
    step.find = regex_finder(part.what(), "\\p{N}");
    if (!part.flag("individual_digits", false)) step.behavior = Behavior::contiguous;
  } else if (type == "CharDelimiterSplit") {
    step = {.find = finder_of(character_of(part, "delimiter")), .behavior = Behavior::removed};
  } else if (type == "FixedLength") {
    const int64_t length = part.whole("length");
    if (length < 1 || length > UINT16_MAX) part.at("length").refuse("1 to 65535");
    step.find = regex_finder(part.what(), concat("[\\s\\S]{1,", length, '}'));
  } else {
    part.at("type").refuse(kKnownType);
  }
  splitter.add(std::move(step));
  if (type == "BertPreTokenizer") splitter.add({.find = finder_of(is_punctuation)});
  return false;
}

}  // namespace weft::text
