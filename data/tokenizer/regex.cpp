// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "data/tokenizer/unicode.h"
#include "weft/error.h"

namespace weft::text {

/// What a search writes to; one a thread.
struct RegexScratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(size_t{1} << 15, size_t{1} << 22, nullptr);
  RegexScratch() {
    if (!data || !context || !stack) fail_call("pcre2_match_data_create", "no memory");
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;
  ~RegexScratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

/// The pattern in PCRE2's syntax: Oniguruma's \s does not match U+180E, PCRE2's does.
static std::string pcre2_pattern(const std::string& pattern) {
  std::string text;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      text += pattern[i];
      continue;
    }
    const char next = pattern[++i];
    if (next == 's') {
      text += "\\p{White_Space}";
    } else if (next == 'S') {
      text += "\\P{White_Space}";
    } else {
      text += {'\\', next};
    }
  }
  return text;
}

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
  const std::string text = pcre2_pattern(pattern);
  int code = 0;
  size_t offset = 0;
  pcre2_code* compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &offset, nullptr);
  if (!compiled) {
    fail(what, ": the pattern is ", in_quotes(pattern), ", expected a regular expression; ",
         regex_error(code));
  }
  code_ = {compiled, [](const void* held) {
             pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(held)));
           }};
  // Without the just-in-time compiler, pcre2_match interprets the pattern.
  pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
}

bool Regex::find(std::string_view text, size_t from, TextRange& match) const {
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
