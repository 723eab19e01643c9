// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <optional>
#include <stdexcept>

#include "data/template/syntax.h"
#include "data/unicode/unicode.h"
#include "weft/error.h"

namespace weft::jinja {

void fail_at(int line, const std::string& problem) {
  throw std::invalid_argument(escaped(concat("chat template: line ", line, ": ", problem)));
}

/// White space of Python's \s and str.strip.
bool is_space(char32_t value) {
  return text::is_white_space(value) || (value >= 0x1C && value <= 0x1F);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_name(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         (c & 0x80) != 0;
}

/// \r\n and \r become \n, and one \n at the end goes.
static std::string with_plain_lines(std::string_view source) {
  std::string made, lines;
  text::append_replaced(made, source, "\r\n", "\n");
  std::ranges::replace(made, '\r', '\n');
  if (made.ends_with('\n')) made.pop_back();
  return made;
}

/// The text that a literal stands for, by Python's escapes.
class Unescaped {
 public:
  Unescaped(std::string_view text, int line) : text_(text), line_(line) {}

  std::string text() {
    while (!text_.empty()) {
      const size_t plain = std::min(text_.find('\\'), text_.size());
      made_ += text_.substr(0, plain);
      text_.remove_prefix(plain);
      if (text_.size() > 1) append_escape();
    }
    return std::move(made_);
  }

 private:
  void append_escape() {
    static constexpr std::string_view kLetters = "abfnrtv\\'\"\n";
    static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    const char c = text_[1];
    text_.remove_prefix(2);
    if (const size_t at = kLetters.find(c); at != kLetters.npos) {
      if (at < kMeanings.size()) made_ += kMeanings[at];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      append_code(c == 'x' ? 2 : c == 'u' ? 4 : 8, 16, true);
    } else if (c >= '0' && c <= '7') {
      text_ = {text_.data() - 1, text_.size() + 1};
      append_code(3, 8, false);
    } else if (c == 'N') {
      fail_at(line_, "a literal has the escape \\N, expected \\u and a number");
    } else {
      made_ += '\\';
      made_ += c;
    }
  }
  void append_code(size_t most, int base, bool whole) {
    uint32_t code = 0;
    const std::string_view digits = text_.substr(0, most);
    const char* end = std::from_chars(digits.data(), digits.data() + digits.size(), code, base).ptr;
    const auto used = static_cast<size_t>(end - digits.data());
    if ((whole && used != most) || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      fail_at(line_, "a literal has an escape that is not a character, expected one that is");
    }
    text::append_code_point(made_, code);
    text_.remove_prefix(used);
  }

  std::string_view text_;
  int line_;
  std::string made_;
};

/// Cuts a template; `at_` is where the rest begins.
class Lexer {
 public:
  explicit Lexer(std::string_view source) : kept_(with_plain_lines(source)), source_(kept_) {}

  std::vector<Token> tokens() {
    while (at_ < source_.size()) root();
    return std::move(tokens_);
  }

 private:
  using Type = Token::Type;

  std::string_view rest() const { return source_.substr(at_); }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  /// Goes on to a later place and counts the lines.
  void advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }
  void skip_space() {
    const std::string_view after = text::stripped(rest(), true, false, is_space);
    advance(source_.size() - after.size());
  }
  void push(Type type, std::string text = {}, Value value = {}) {
    tokens_.push_back({type, std::move(text), line_, std::move(value)});
  }

  /// The text before a tag, as the sign at the tag's start says.
  std::string_view before_tag(std::string_view text, char sign, bool is_output) const {
    if (sign == '-') return text::stripped(text, false, true, is_space);
    if (sign == '+' || is_output) return text;
    const size_t line = text.rfind('\n') + 1;  // 0 when there is none
    const size_t begin = static_cast<size_t>(text.data() - source_.data());
    const bool starts_line = line > 0 || begin == 0 || source_[begin - 1] == '\n';
    const std::string_view last = text.substr(line);
    const bool is_blank = text::stripped(last, true, false, is_space).empty();
    return starts_line && is_blank ? text.substr(0, line) : text;
  }
  void push_data(std::string_view text) {
    if (!text.empty()) push(Type::data, std::string(text));
  }

  /// Goes past the sign and the end of a tag, and past what they remove; false elsewhere.
  bool skip_end(std::string_view end, bool trims) {
    const char sign = peek();
    const bool has_sign =
        (sign == '-' || (trims && sign == '+')) && source_.substr(at_ + 1).starts_with(end);
    if (!has_sign && !rest().starts_with(end)) return false;
    advance(at_ + end.size() + (has_sign ? 1 : 0));
    if (has_sign && sign == '-') skip_space();
    if (!has_sign && trims && peek() == '\n') advance(at_ + 1);
    return true;
  }

  void root() {
    size_t begin = at_;
    do {
      begin = source_.find('{', begin);
      if (begin == source_.npos || begin + 1 >= source_.size()) {
        push_data(rest());
        return advance(source_.size());
      }
    } while (std::string_view("%{#").find(source_[begin + 1]) == std::string_view::npos && ++begin);
    const char kind = source_[begin + 1];
    const char sign = begin + 2 < source_.size() ? source_[begin + 2] : '\0';
    push_data(before_tag(source_.substr(at_, begin - at_), sign, kind == '{'));
    const bool has_sign = sign == '-' || sign == '+';
    advance(begin + 2 + (has_sign ? 1 : 0));
    if (kind == '#') return comment();
    if (kind == '%' && is_raw()) return raw();
    const bool is_output = kind == '{';
    push(is_output ? Type::begin_output : Type::begin_tag);
    tag(is_output);
  }

  void comment() {
    const size_t end = source_.find("#}", at_);
    if (end == source_.npos) fail_at(line_, "a comment has no end, expected #}");
    const bool has_sign = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+');
    advance(has_sign ? end - 1 : end);
    skip_end("#}", true);
  }

  /// True when the tag is {% raw %}; moves past it then.
  bool is_raw() {
    const size_t at = at_;
    const int line = line_;
    skip_space();
    if (rest().starts_with("raw")) {
      advance(at_ + 3);
      skip_space();
      if (skip_end("%}", false)) return true;
    }
    at_ = at;
    line_ = line;
    return false;
  }
  void raw() {
    const size_t begin = at_;
    for (size_t end = begin; (end = source_.find("{%", end)) != source_.npos; end += 2) {
      const int line = line_;
      const char sign = end + 2 < source_.size() ? source_[end + 2] : '\0';
      advance(end + (sign == '-' || sign == '+' ? 3 : 2));
      skip_space();
      if (rest().starts_with("endraw")) {
        advance(at_ + 6);
        skip_space();
        if (skip_end("%}", true)) {
          return push_data(before_tag(source_.substr(begin, end - begin), sign, false));
        }
      }
      at_ = begin;
      line_ = line;
    }
    fail_at(line_, "the tag raw has no end, expected endraw");
  }

  void tag(bool is_output) {
    while (true) {
      if (brackets_.empty() && skip_end(is_output ? "}}" : "%}", !is_output)) {
        return push(is_output ? Type::end_output : Type::end_tag);
      }
      const size_t at = at_;
      skip_space();
      if (at_ != at) continue;
      if (at_ >= source_.size()) fail_at(line_, "the template ends within a tag");
      const char c = peek();
      if (is_digit(c)) {
        number();
      } else if (is_name(c)) {
        const auto* end = std::ranges::find_if_not(rest(), is_name);
        push(Type::name, std::string(rest().begin(), end));
        advance(at_ + tokens_.back().text.size());
      } else if (c == '\'' || c == '"') {
        literal(c);
      } else {
        sign();
      }
    }
  }

  void literal(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_at(line_, "a text has no end, expected a quote");
    push(Type::text, Unescaped(source_.substr(at_ + 1, end - at_ - 1), line_).text());
    advance(end + 1);
  }

  /// The digits from a place on, with _ between them.
  size_t digits_end(size_t at, bool (*belongs)(char)) const {
    const size_t begin = at;
    while (at < source_.size() &&
           (belongs(source_[at]) || (at > begin && source_[at] == '_' && at + 1 < source_.size() &&
                                     belongs(source_[at + 1])))) {
      ++at;
    }
    return at;
  }
  static bool is_hex(char c) { return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f'); }

  void number() {
    const char mark = static_cast<char>(peek(1) | 32);
    const int base = peek() != '0' ? 10 : mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    size_t end = base == 10 ? digits_end(at_, is_digit) : digits_end(at_ + 2, is_hex);
    bool is_float = false;
    const bool follows_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (base == 10 && !follows_dot) {
      const auto digit_at = [&](size_t at) { return at < source_.size() && is_digit(source_[at]); };
      if (source_[std::min(end, source_.size() - 1)] == '.' && digit_at(end + 1)) {
        end = digits_end(end + 1, is_digit);
        is_float = true;
      }
      if (end < source_.size() && (source_[end] | 32) == 'e') {
        const bool has_sign =
            end + 1 < source_.size() && (source_[end + 1] == '-' || source_[end + 1] == '+');
        if (digit_at(end + (has_sign ? 2 : 1))) {
          end = digits_end(end + (has_sign ? 2 : 1), is_digit);
          is_float = true;
        }
      }
    }
    std::string digits(source_.substr(at_, end - at_));
    std::erase(digits, '_');
    push(Type::number, digits, is_float ? float_of(digits) : whole_of_digits(digits, base));
    advance(end);
  }
  static Value float_of(const std::string& digits) {
    double value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return value;
  }
  Value whole_of_digits(const std::string& digits, int base) const {
    int64_t value = 0;
    const char* begin = digits.data() + (base == 10 ? 0 : 2);
    const char* end = digits.data() + digits.size();
    const auto [at, error] = std::from_chars(begin, end, value, base);
    const bool has_zeros = base == 10 && digits.size() > 1 && digits[0] == '0' && value != 0;
    if (error == std::errc() && at == end && !has_zeros) return value;
    fail_at(line_, concat("a number is ", in_quotes(digits), ", expected one below 2^63"));
  }

  void sign() {
    static constexpr std::string_view kPairs[] = {"//", "**", "==", "!=", ">=", "<="};
    const auto* pair = std::ranges::find(kPairs, rest().substr(0, 2));
    const std::string text(rest().substr(0, pair == std::end(kPairs) ? 1 : 2));
    if (std::string_view("+-/*%~[](){}=!<>.:|,;").find(text[0]) == std::string_view::npos ||
        text == "!") {
      fail_at(line_, concat("a tag has the character ", in_quotes(text), ", expected none"));
    }
    static constexpr std::string_view kOpening = "([{", kClosing = ")]}";
    if (const size_t at = kOpening.find(text[0]); at != kOpening.npos) brackets_ += kClosing[at];
    if (kClosing.find(text[0]) != kClosing.npos) {
      if (brackets_.empty() || brackets_.back() != text[0]) {
        fail_at(line_, concat("a tag has a ", text, " that closes nothing, expected none"));
      }
      brackets_.pop_back();
    }
    push(Type::sign, text);
    advance(at_ + text.size());
  }

  std::string kept_;
  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  /// The closing brackets that are expected.
  std::string brackets_;
  std::vector<Token> tokens_;
};

std::vector<Token> tokens_of(std::string_view source) { return Lexer(source).tokens(); }

}  // namespace weft::jinja
