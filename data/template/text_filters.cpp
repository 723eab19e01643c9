// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "data/template/run.h"
#include "data/unicode/unicode.h"

namespace weft::jinja {

/// A method of texts as a filter: the value becomes a text first.
template <class Change> static Value changed(Call& call, const Change& change) {
  const Value& value = call.plain[0];
  return Value(change(call.run.printed(value)), value.is_safe());
}

template <Case wanted> static Value cased(Call& call) {
  call.bind({"value"}, 1);
  return changed(call, [&](const std::string& text) { return in_case(call.run, text, wanted); });
}

/// Words begin after white space, hyphens and opening brackets.
static Value title_filter(Call& call) {
  return changed(call, [&](const std::string& text) {
    std::string made;
    bool begins = true;
    for (const std::string_view c : characters(text)) {
      made += in_case(call.run, c, begins ? Case::upper : Case::lower);
      const char32_t value = text::code_point_at(c, 0).value;
      begins = is_space(value) ||
               (value < 0x80 && std::string_view("-({[<").find(c[0]) != std::string_view::npos);
    }
    return made;
  });
}

static Value trim(Call& call) {
  const auto bound = call.bind({"value", "chars"}, 1);
  return changed(call, [&](const std::string& text) {
    call.run.spend_text(text.size());
    return std::string(trimmed(call.run, text, bound[1]));
  });
}

static Value replace_filter(Call& call) {
  const auto bound = call.bind({"s", "old", "new", "count"}, 3);
  const bool has_count = bound[3] && !bound[3]->is_none();
  return replaced(call.run, call.run.printed(*bound[0]), call.run.printed(*bound[1]),
                  call.run.printed(*bound[2]), has_count ? whole_or(call, bound[3], -1) : -1);
}

static Value string_filter(Call& call) {
  call.bind({"object"}, 1);
  const Value& value = call.plain[0];
  return value.text() ? value : Value(call.run.printed(value));
}

static Value indent(Call& call) {
  const auto bound = call.bind({"s", "width", "first", "blank"}, 1);
  const bool is_text = bound[1] && bound[1]->text();
  const auto width = is_text ? 0 : std::max<int64_t>(whole_or(call, bound[1], 4), 0);
  call.run.spend(static_cast<size_t>(width));
  const std::string by = is_text ? *bound[1]->text() : std::string(static_cast<size_t>(width), ' ');
  if (!bound[0]->text()) call.run.refuse("indent", *bound[0], "a str");
  const bool with_blank = flag_or(bound[3], false);
  std::string made = flag_or(bound[2], false) ? by : "";
  bool is_first = true;
  // The line end that is added lets the text end with an empty line.
  const std::string text = *bound[0]->text() + '\n';
  for (const std::string_view line : lines_of(text)) {
    if (!is_first) made += '\n';
    if (!is_first && (with_blank || !line.empty())) made += by;
    made += line;
    call.run.spend(1 + (line.size() + by.size()) / 16);
    is_first = false;
  }
  return Value(std::move(made), bound[0]->is_safe());
}

static Value center(Call& call) {
  const auto bound = call.bind({"value", "width"}, 1);
  return changed(call, [&](const std::string& text) {
    const int64_t width = whole_or(call, bound[1], 80);
    const int64_t missing = std::max<int64_t>(width - static_cast<int64_t>(length_of(text)), 0);
    call.run.spend(static_cast<size_t>(missing));
    const auto left = static_cast<size_t>(missing / 2 + (missing & width & 1));
    return std::string(left, ' ') + text + std::string(static_cast<size_t>(missing) - left, ' ');
  });
}

static Value truncate(Call& call) {
  const auto bound = call.bind({"s", "length", "killwords", "end", "leeway"}, 1);
  const std::string* given = bound[0]->text();
  const std::string text = given ? *given : "", end = text_or(call, bound[3], "...");
  const int64_t length = whole_or(call, bound[1], 255);
  const int64_t leeway = bound[4] && !bound[4]->is_none() ? whole_or(call, bound[4], 5) : 5;
  const int64_t most = length - static_cast<int64_t>(length_of(end));
  if (most < 0 || leeway < 0) {
    call.run.refuse("truncate has a length below that of the end, expected at least that");
  }
  const bool is_short =
      given == nullptr &&
      static_cast<int64_t>(call.run.elements(*bound[0], "truncate").size()) <= length + leeway;
  if (is_short) return *bound[0];
  if (!given) call.run.refuse("truncate", *bound[0], "a str");
  call.run.spend_text(text.size());
  const auto all = characters(text);
  if (static_cast<int64_t>(all.size()) <= length + leeway) return *bound[0];
  std::string made;
  for (int64_t i = 0; i < most; ++i) made += all[static_cast<size_t>(i)];
  const size_t space = made.rfind(' ');
  if (!flag_or(bound[2], false) && space != made.npos) made.resize(space);
  return made + end;
}

static Value wordcount(Call& call) {
  const std::string text = call.run.printed(*call.bind({"s"}, 1)[0]);
  int64_t count = 0;
  bool is_inside = false;
  for (const std::string_view c : characters(text)) {
    const char32_t value = text::code_point_at(c, 0).value;
    const bool is_word = text::is_letter(value) || text::is_digit(value) || value == '_';
    if (is_word && !is_inside) ++count;
    is_inside = is_word;
  }
  return count;
}

static Value safe(Call& call) {
  call.bind({"value"}, 1);
  return Value(call.run.printed(call.plain[0]), true);
}

static Value escape(Call& call) {
  call.bind({"s"}, 1);
  const Value& value = call.plain[0];
  return value.is_safe() ? value : Value(html_escaped(call.run.printed(value)), true);
}

static Value format_filter(Call& call) {
  const std::string text = call.run.printed(call.plain[0]);
  Values values(call.plain.begin() + 1, call.plain.end());
  if (call.named.empty()) {
    return percent_format(call.run, text, make_list(std::move(values), List::Kind::tuple));
  }
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [name, value] : call.named) items.emplace_back(name, value);
  return percent_format(call.run, text, make_dict(std::move(items)));
}

/// A number in a text as Python's int() and float() read it, or nothing.
template <class Number>
static std::optional<Number> parsed(const std::string& text, int base = 10) {
  std::string digits(text::stripped(text, true, true, is_space));
  std::erase(digits, '_');
  if (digits.starts_with('+')) digits.erase(0, 1);
  Number value = 0;
  const char *begin = digits.data(), *end = begin + digits.size();
  std::from_chars_result result{};
  if constexpr (std::is_integral_v<Number>) {
    const std::string_view mark = base == 16 ? "0x" : base == 8 ? "0o" : base == 2 ? "0b" : "";
    if (!mark.empty() && std::string_view(digits).starts_with(mark)) begin += mark.size();
    result = std::from_chars(begin, end, value, base);
  } else {
    result = std::from_chars(begin, end, value);
  }
  if (digits.empty() || result.ec != std::errc() || result.ptr != end) return {};
  return value;
}

static Value to_whole(Call& call) {
  const auto bound = call.bind({"value", "default", "base"}, 1);
  const Value& value = *bound[0];
  std::optional<double> number;
  if (const std::string* text = value.text()) {
    if (const auto whole = parsed<int64_t>(
            *text, static_cast<int>(std::clamp<int64_t>(whole_or(call, bound[2], 10), 2, 36))))
      return *whole;
    number = parsed<double>(*text);
  } else if (const auto whole = whole_of(value)) {
    return *whole;
  } else if (value.as<double>()) {
    number = *value.as<double>();
  }
  if (value.is_undefined()) call.run.refuse("int", value, "a value");
  if (number && std::isfinite(*number) && std::abs(*number) >= 9e18) {
    call.run.refuse("a whole number is beyond 64 bits, expected a smaller one");
  }
  if (number && std::isfinite(*number)) return static_cast<int64_t>(std::trunc(*number));
  return bound[1].value_or(0);
}

static Value to_float(Call& call) {
  const auto bound = call.bind({"value", "default"}, 1);
  const Value& value = *bound[0];
  if (value.is_undefined()) call.run.refuse("float", value, "a value");
  if (const auto number = number_of(value)) return *number;
  const auto number = value.text() ? parsed<double>(*value.text()) : std::nullopt;
  return number ? Value(*number) : bound[1].value_or(0.0);
}

static Value absolute(Call& call) {
  const Value value = *call.bind({"value"}, 1)[0];
  if (const auto whole = whole_of(value))
    return *whole < 0 ? call.run.binary("-", 0, value) : Value(*whole);
  if (value.as<double>()) return std::abs(*value.as<double>());
  call.run.refuse("abs", value, "a number");
}

static Value rounded(Call& call) {
  const auto bound = call.bind({"value", "precision", "method"}, 1);
  const auto number = number_of(*bound[0]);
  if (!number) call.run.refuse("round", *bound[0], "a number");
  const int64_t digits = whole_or(call, bound[1], 0);
  const std::string method = text_or(call, bound[2], "common");
  const double power = std::pow(10.0, static_cast<double>(digits));
  if (method == "ceil") return (std::ceil(*number * power) + 0.0) / power;
  if (method == "floor") return (std::floor(*number * power) + 0.0) / power;
  if (method != "common")
    call.run.refuse(
        concat("the method of round is ", in_quotes(method), ", expected common, ceil or floor"));
  if (bound[0]->as<double>() == nullptr && digits >= 0) return *whole_of(*bound[0]);
  if (digits < 0 || digits > 300) return std::nearbyint(*number * power) / power;
  // The nearest decimal, as round() of Python finds it.
  const std::string text = formatted("%.*f", static_cast<int>(digits), *number);
  return parsed<double>(text).value_or(*number);
}

Value to_json(Call& call) {
  const auto bound = call.bind({"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1);
  JsonStyle style{.ascii = flag_or(bound[1], false), .sorted = flag_or(bound[4], false)};
  if (bound[2] && !bound[2]->is_none()) {
    style.has_indent = true;
    const auto width = bound[2]->text() ? 0 : std::max<int64_t>(whole_or(call, bound[2], 0), 0);
    call.run.spend(static_cast<size_t>(width));
    style.indent =
        bound[2]->text() ? *bound[2]->text() : std::string(static_cast<size_t>(width), ' ');
    style.between = std::string(1, ',');
  }
  if (bound[3] && !bound[3]->is_none()) {
    const Values pair = call.run.elements(*bound[3], "tojson");
    if (pair.size() != 2 || !pair[0].text() || !pair[1].text()) {
      call.run.refuse("tojson", *bound[3], "two texts as separators");
    }
    style.between = *pair[0].text();
    style.colon = *pair[1].text();
  }
  if (bound[0]->is_undefined()) call.run.refuse("tojson", *bound[0], "a value");
  const size_t indents = static_cast<size_t>(depth_of(*bound[0])) * style.indent.size();
  call.run.spend(weight_of(*bound[0]) *
                 (4 + (indents + style.between.size() + style.colon.size()) / 16));
  std::string made = json_text(*bound[0], style);
  call.run.spend_text(made.size());
  return made;
}

Filter text_filter(const std::string& name) {
  static const std::map<std::string, Filter> filters = {{"upper", cased<Case::upper>},
                                                        {"lower", cased<Case::lower>},
                                                        {"capitalize", cased<Case::capital>},
                                                        {"title", title_filter},
                                                        {"trim", trim},
                                                        {"replace", replace_filter},
                                                        {"string", string_filter},
                                                        {"indent", indent},
                                                        {"center", center},
                                                        {"truncate", truncate},
                                                        {"wordcount", wordcount},
                                                        {"safe", safe},
                                                        {"escape", escape},
                                                        {"e", escape},
                                                        {"format", format_filter},
                                                        {"int", to_whole},
                                                        {"float", to_float},
                                                        {"abs", absolute},
                                                        {"round", rounded},
                                                        {"tojson", to_json}};
  const auto found = filters.find(name);
  return found == filters.end() ? nullptr : found->second;
}

}  // namespace weft::jinja
