// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

#include "data/tokenizer/text_steps.h"
#include "data/tokenizer/unicode.h"
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

Regex::Regex(const std::string& what, const std::string& pattern) {
  static constexpr size_t kLongest = 10000;
  if (pattern.size() > kLongest) {
    fail(what, ": a pattern has ", pattern.size(), " bytes, expected at most ", kLongest);
  }
  if (pattern.find("&&") != pattern.npos) {
    fail(what, ": the pattern is ", in_quotes(pattern),
         ", expected none with an intersection of classes (&&)");
  }
  const std::string text = PatternWriter(what, pattern).text();
  int code = 0;
  size_t offset = 0;
  // The anchors ^ and $ of Oniguruma are those of lines.
  pcre2_code* compiled = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_MULTILINE, &code, &offset, nullptr);
  if (!compiled) {
    fail(what, ": the pattern is ", in_quotes(pattern), ", expected a regular expression; ",
         regex_error(code));
  }
  code_ = {compiled, [](const void* held) {
             pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(held)));
           }};
  uint32_t matches_empty = 0;
  pcre2_pattern_info(compiled, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    fail(what, ": the pattern is ", in_quotes(pattern), ", expected one that cannot match nothing");
  }
  // Without the just-in-time compiler, pcre2_match interprets the pattern.
  pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
}

bool Regex::operator()(std::string_view text, size_t from, TextRange& match) const {
  thread_local RegexScratch scratch;
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  while (from < text.size()) {
    const int result = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                   from, PCRE2_NO_UTF_CHECK, scratch.data, scratch.context);
    if (result == PCRE2_ERROR_NOMATCH) return false;
    if (result < 0) fail_call("pcre2_match", regex_error(result));
    const size_t* bounds = pcre2_get_ovector_pointer(scratch.data);
    match = {bounds[0], bounds[1]};
    if (match.begin < match.end) return true;
    if (match.begin >= text.size()) return false;
    from = match.begin + code_point_at(text, match.begin).bytes;
  }
  return false;
}

}  // namespace weft::text
