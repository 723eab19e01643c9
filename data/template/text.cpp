// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "data/template/run.h"
#include "data/unicode/unicode.h"

namespace weft::jinja {

std::string_view trimmed(Run& run, std::string_view text, const std::optional<Value>& of, bool left,
                         bool right) {
  if (!of || of->is_none()) return text::stripped(text, left, right, is_space);
  const std::string removed = run.printed(*of);
  run.spend(removed.size() / 16 * text.size());
  const auto is_removed = [&](char32_t value) {
    std::string character;
    text::append_code_point(character, value);
    return removed.find(character) != removed.npos;
  };
  return text::stripped(text, left, right, is_removed);
}

std::string replaced(Run& run, const std::string& text, const std::string& from,
                     const std::string& to, int64_t most) {
  std::string made;
  size_t at = 0;
  for (; most != 0; --most) {
    // An empty text is found before each character and at the end.
    const size_t found = text.find(from, at);
    if (found == text.npos) break;
    made.append(text, at, found - at).append(to);
    run.spend(1 + (found - at + to.size()) / 16);
    at = found + from.size();
    if (!from.empty()) continue;
    if (at >= text.size()) return made;
    const size_t bytes = text::code_point_at(text, at).bytes;
    made.append(text, at, bytes);
    at += bytes;
  }
  run.spend_text(text.size());
  return made.append(text, std::min(at, text.size()));
}

std::string in_case(Run& run, std::string_view text, Case wanted) {
  run.spend_text(text.size());
  std::string made;
  bool is_first = true;
  for (const std::string_view c : characters(text)) {
    const char32_t value = text::code_point_at(c, 0).value;
    const bool is_lower = wanted == Case::lower || (wanted == Case::capital && !is_first);
    const bool is_title = wanted == Case::title || (wanted == Case::capital && is_first);
    // The lower case of a sigma depends on its place.
    const bool is_known = is_lower ? value != 0x3A3 : text::append_upper(made, value, is_title);
    if (!is_known) {
      run.refuse(concat("the case of ", c, " is changed, expected a letter that stays one letter"));
    }
    if (is_lower) text::append_lower(made, value);
    is_first = false;
  }
  return made;
}

std::vector<std::string_view> lines_of(std::string_view text, bool keeps_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const text::CodePoint c = text::code_point_at(text, at);
    const size_t next = at + c.bytes;
    const bool is_end = (c.value >= 0x0A && c.value <= 0x0D) ||
                        (c.value >= 0x1C && c.value <= 0x1E) || c.value == 0x85 ||
                        c.value == 0x2028 || c.value == 0x2029;
    const size_t after = c.value == '\r' && text.substr(next).starts_with('\n') ? next + 1 : next;
    if (is_end) {
      lines.push_back(text.substr(begin, (keeps_ends ? after : at) - begin));
      begin = after;
    }
    at = is_end ? after : next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string html_escaped(const std::string& text) {
  static constexpr std::string_view kSigns = "&<>'\"";
  static constexpr const char* kNames[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  std::string made;
  for (const char c : text) {
    const size_t at = kSigns.find(c);
    if (at == kSigns.npos) {
      made += c;
    } else {
      made += kNames[at];
    }
  }
  return made;
}

/// One conversion of a format: what stands before its letter, such as -05.2.
struct Conversion {
  bool left = false, zero = false, plus = false, space = false;
  size_t width = 0;
  int precision = -1;
  char letter = 's';
};

static Conversion conversion_of(Run& run, std::string_view& text, std::string_view letters) {
  Conversion made;
  const auto flag = [&](char c) {
    if (!text.starts_with(c)) return false;
    text.remove_prefix(1);
    return true;
  };
  const auto number = [&] {
    size_t value = 0;
    while (!text.empty() && text[0] >= '0' && text[0] <= '9' && value < 100) {
      value = value * 10 + static_cast<size_t>(text[0] - '0');
      text.remove_prefix(1);
    }
    return value;
  };
  for (bool more = true; more;) {
    const bool left = flag('-'), zero = flag('0'), plus = flag('+'), space = flag(' ');
    made.left |= left;
    made.zero |= zero;
    made.plus |= plus;
    made.space |= space;
    more = left || zero || plus || space;
  }
  made.width = number();
  if (flag('.')) made.precision = static_cast<int>(number());
  if (!text.empty() && letters.find(text[0]) != letters.npos) {
    made.letter = text[0];
    text.remove_prefix(1);
    return made;
  }
  run.refuse(concat("a format has ", in_quotes(text.substr(0, 8)), ", expected one of ", letters));
}

static std::string converted(Run& run, const Conversion& to, const Value& value) {
  std::string made;
  if (to.letter == 's' || to.letter == 'r') {
    made = to.letter == 's' ? run.printed(value) : run.repr(value);
    if (to.precision >= 0) {
      std::string cut;
      for (int kept = 0; const auto c : characters(made)) {
        if (kept++ == to.precision) break;
        cut += c;
      }
      made = cut;
    }
  } else {
    const auto number = number_of(value);
    if (!number) run.refuse("a format", value, "a number");
    const bool is_whole =
        to.letter == 'd' || to.letter == 'i' || to.letter == 'x' || to.letter == 'X';
    const auto whole = whole_of(value);
    if (is_whole && !whole && (to.letter == 'x' || to.letter == 'X')) {
      run.refuse("a format", value, "a whole number");
    }
    const int64_t rounded =
        whole ? *whole : static_cast<int64_t>(std::trunc(std::clamp(*number, -9e18, 9e18)));
    const auto size = static_cast<unsigned long long>(rounded < 0 ? -rounded : rounded);
    const char c = to.letter;
    made = is_whole ? formatted(c == 'x'   ? "%llx"
                                : c == 'X' ? "%llX"
                                           : "%llu",
                                size)
                    : formatted(c == 'e'   ? "%.*e"
                                : c == 'g' ? "%.*g"
                                           : "%.*f",
                                to.precision < 0 ? 6 : to.precision, std::abs(*number));
    const bool is_negative = is_whole ? rounded < 0 : std::signbit(*number);
    const std::string sign = is_negative ? "-" : to.plus ? "+" : to.space ? " " : "";
    const size_t zeros = to.zero && !to.left && made.size() + sign.size() < to.width
                             ? to.width - made.size() - sign.size()
                             : 0;
    made = sign + std::string(zeros, '0') + made;
  }
  const size_t size = length_of(made);
  if (size >= to.width) return made;
  const std::string padding(to.width - size, ' ');
  return to.left ? made + padding : padding + made;
}

std::string percent_format(Run& run, const std::string& format, const Value& values) {
  const List* tuple = values.to<List>();
  const bool is_tuple = tuple && tuple->kind == List::Kind::tuple;
  const Values given = is_tuple ? tuple->items : Values{values};
  std::string made;
  size_t used = 0;
  bool is_named = false;
  std::string_view rest = format;
  while (!rest.empty()) {
    const size_t plain = std::min(rest.find('%'), rest.size());
    made += rest.substr(0, plain);
    rest.remove_prefix(plain);
    if (rest.empty()) break;
    rest.remove_prefix(1);
    if (rest.starts_with('%')) {
      made += '%';
      rest.remove_prefix(1);
      continue;
    }
    std::optional<Value> named;
    if (rest.starts_with('(')) {
      const size_t end = rest.find(')');
      const Dict* dict = values.to<Dict>();
      const Value* found =
          dict && end != rest.npos ? dict->find(Value(rest.substr(1, end - 1))) : nullptr;
      if (!found) run.refuse("a format has a name without a value, expected a value");
      named = *found;
      is_named = true;
      rest.remove_prefix(end + 1);
    }
    const Conversion to = conversion_of(run, rest, "srdifgexX");
    if (!named && used >= given.size()) {
      run.refuse(concat("a format has ", given.size(), " values, expected more"));
    }
    made += converted(run, to, named ? *named : given[used++]);
    run.spend_text(made.size());
  }
  // Python takes any value with items for a mapping, whose values need not be used.
  const bool is_mapping = !is_tuple && (values.to<Dict>() || tuple || values.is_undefined());
  if (used < given.size() && !is_named && !is_mapping) {
    run.refuse(concat("a format has ", given.size(), " values, expected ", used));
  }
  return made;
}

/// The value of a field such as 0, name, or nothing for the next one.
static Value field_value(Call& call, std::string_view field, size_t& used) {
  if (field.empty()) field = {};
  const bool is_number = std::ranges::all_of(field, [](char c) { return c >= '0' && c <= '9'; });
  if (is_number) {
    const size_t at = field.empty() ? used++ : std::stoul(std::string(field.substr(0, 9)));
    if (at < call.plain.size()) return call.plain[at];
  }
  for (const auto& [name, value] : call.named) {
    if (name == field) return value;
  }
  call.run.refuse(concat("a format has the field ", in_quotes(field),
                         ", expected a number or name of a value"));
}

std::string brace_format(Call& call, const std::string& format) {
  std::string made;
  size_t used = 0;
  std::string_view rest = format;
  while (!rest.empty()) {
    const char c = rest[0];
    const bool is_double = rest.size() > 1 && rest[1] == c;
    if ((c != '{' && c != '}') || is_double) {
      made += c;
      rest.remove_prefix(c == '{' || c == '}' ? 2 : 1);
      continue;
    }
    const size_t end = rest.find('}');
    if (c == '}' || end == rest.npos) call.run.refuse("a format has a single brace, expected two");
    std::string_view field = rest.substr(1, end - 1), form = "s";
    rest.remove_prefix(end + 1);
    const size_t colon = field.find(':');
    const bool has_form = colon != field.npos && colon + 1 < field.size();
    std::string form_text = has_form ? std::string(field.substr(colon + 1)) : "s";
    field = field.substr(0, colon);
    const Value value = field_value(call, field, used);
    if (!has_form) {
      made += call.run.printed(value);
    } else {
      // A text stands on the left of its field, a number on the right.
      form = form_text;
      if (std::string_view("sdfgexX").find(form.back()) == std::string_view::npos) {
        form_text += value.text() ? 's' : whole_of(value) ? 'd' : '?';
        form = form_text;
      }
      Conversion to = conversion_of(call.run, form, "sdfgexX");
      to.left = value.text() != nullptr;
      if (!form.empty())
        call.run.refuse("a format has a form of a field, expected a width, precision and letter");
      made += converted(call.run, to, value);
    }
    call.run.spend_text(made.size());
  }
  return made;
}

}  // namespace weft::jinja
