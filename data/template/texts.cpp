// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "data/template/value.h"
#include "data/unicode/unicode.h"
#include "weft/error.h"

namespace weft::jinja {

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[40];
  const double size = std::abs(value);
  const bool is_short = value == 0 || (size >= 1e-4 && size < 1e16);
  const auto form = is_short ? std::chars_format::fixed : std::chars_format::scientific;
  std::string made(text, std::to_chars(text, std::end(text), value, form).ptr);
  if (is_short && made.find('.') == made.npos) made += ".0";
  return made;
}

/// A text as Python's repr writes it.
static std::string quoted(const std::string& text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string made(1, quote);
  for (const std::string_view c : characters(text)) {
    const char32_t code = text::code_point_at(c, 0).value;
    if (c[0] == '\\' || c[0] == quote) {
      made += '\\';
      made += c;
    } else if (c[0] == '\n' || c[0] == '\r' || c[0] == '\t') {
      made += c[0] == '\n' ? "\\n" : c[0] == '\r' ? "\\r" : "\\t";
    } else if (text::is_printable(code)) {
      made += c;
    } else {
      made += formatted(code < 0x100     ? "\\x%02x"
                        : code < 0x10000 ? "\\u%04x"
                                         : "\\U%08x",
                        static_cast<unsigned>(code));
    }
  }
  return made + quote;
}

static std::string repr_of_dict(const Dict& dict) {
  return concat('{',
                listed(dict.items,
                       [](const auto& item) {
                         return concat(repr_of(item.first), ": ", repr_of(item.second));
                       }),
                '}');
}

static std::string repr_of_list(const List& list) {
  static constexpr const char* kBegin[] = {"[", "(", "dict_keys([", "dict_values([",
                                           "dict_items(["};
  const auto kind = static_cast<size_t>(list.kind);
  const bool is_single = list.kind == List::Kind::tuple && list.items.size() == 1;
  const char* end = is_single ? ",)" : kind == 0 ? "]" : kind == 1 ? ")" : "])";
  return concat(kBegin[kind], listed(list.items, repr_of), end);
}

[[noreturn]] static void refuse_text(const Value& value) {
  fail("chat template: the value of an output is of the type ", type_name(value),
       ", expected one that has a text");
}

std::string repr_of(const Value& value) {
  // A namespace may hold itself.
  if (const Dict* dict = value.to<Dict>(); dict && dict->is_namespace) refuse_text(value);
  if (value.is_undefined()) return "Undefined";
  if (value.is_safe()) return concat("Markup(", quoted(*value.text()), ')');
  return value.text() ? quoted(*value.text()) : text_of(value);
}

std::string text_of(const Value& value) {
  if (value.is_undefined()) return "";
  if (value.is_none()) return "None";
  if (const bool* flag = value.as<bool>()) return *flag ? "True" : "False";
  if (const int64_t* whole = value.as<int64_t>()) return std::to_string(*whole);
  if (const double* number = value.as<double>()) return float_text(*number);
  if (const std::string* text = value.text()) return *text;
  const List* list = value.to<List>();
  if (list && list->kind < List::Kind::range) return repr_of_list(*list);
  const Dict* dict = value.to<Dict>();
  if (dict && dict->is_namespace) return concat("<Namespace ", repr_of_dict(*dict), '>');
  if (dict) return repr_of_dict(*dict);
  if (const Loop* loop = value.to<Loop>()) {
    return concat("<LoopContext ", loop->at + 1, '/', loop->items.size(), '>');
  }
  refuse_text(value);
}

static void append_json_text(const std::string& text, bool ascii, std::string& to) {
  to += '"';
  for (const std::string_view c : characters(text)) {
    const char32_t code = text::code_point_at(c, 0).value;
    static constexpr std::string_view kShort = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    if (const size_t at = kShort.find(c[0]); at != kShort.npos) {
      to += '\\';
      to += kLetters[at];
    } else if (code < 0x20 || (ascii && code >= 0x7f && code < 0x10000)) {
      to += formatted("\\u%04x", static_cast<unsigned>(code));
    } else if (ascii && code >= 0x10000) {
      const auto rest = static_cast<unsigned>(code - 0x10000);
      to += formatted("\\u%04x\\u%04x", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
    } else {
      to += c;
    }
  }
  to += '"';
}

/// A key of an object: numbers and the like become texts.
static std::string json_key(const Value& key) {
  if (key.text()) return *key.text();
  const bool has_text = key.is_none() || number_of(key);
  if (!has_text) {
    fail("chat template: tojson has a key of the type ", type_name(key), ", expected a str");
  }
  return json_text(key, {});
}

/// A list, or the pairs of a dict.
template <class Items, class Append>
static void append_json_items(const Items& items, const char* brackets, const JsonStyle& style,
                              int level, std::string& to, const Append& append) {
  to += brackets[0];
  const auto begin_line = [&](int at) {
    if (!style.has_indent || items.empty()) return;
    to += '\n';
    for (int i = 0; i < at; ++i) to += style.indent;
  };
  for (const auto& item : items) {
    if (&item != &items.front()) to += style.between;
    begin_line(level + 1);
    append(item);
  }
  begin_line(level);
  to += brackets[1];
}

static void append_json(const Value& value, const JsonStyle& style, int level, std::string& to) {
  const List* list = value.to<List>();
  const Dict* dict = value.to<Dict>();
  if (value.is_none()) {
    to += "null";
  } else if (const bool* flag = value.as<bool>()) {
    to += *flag ? "true" : "false";
  } else if (const double* number = value.as<double>(); number && !std::isfinite(*number)) {
    to += std::isnan(*number) ? "NaN" : *number < 0 ? "-Infinity" : "Infinity";
  } else if (number_of(value)) {
    to += text_of(value);
  } else if (value.text()) {
    append_json_text(*value.text(), style.ascii, to);
  } else if (list && list->kind <= List::Kind::tuple) {
    append_json_items(list->items, "[]", style, level, to,
                      [&](const Value& item) { append_json(item, style, level + 1, to); });
  } else if (dict && !dict->is_namespace) {
    auto items = dict->items;
    if (style.sorted) {
      std::ranges::stable_sort(items, less, [](const auto& item) { return item.first; });
    }
    append_json_items(items, "{}", style, level, to, [&](const auto& item) {
      append_json_text(json_key(item.first), style.ascii, to);
      to += style.colon;
      append_json(item.second, style, level + 1, to);
    });
  } else {
    fail("chat template: tojson has a value of the type ", type_name(value),
         ", expected one that JSON has");
  }
}

std::string json_text(const Value& value, const JsonStyle& style) {
  std::string to;
  append_json(value, style, 0, to);
  return to;
}

static Value value_of(const std::string& what, const nlohmann::ordered_json& json) {
  if (json.is_null()) return None{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_number()) {
    if (!json.is_number_unsigned() || json.get<uint64_t>() <= uint64_t{INT64_MAX}) {
      return json.get<int64_t>();
    }
    fail(what, ": a number is ", json.dump(), ", expected at most ", INT64_MAX);
  }
  if (json.is_string()) return text::repaired(json.get_ref<const std::string&>());
  if (json.is_array()) {
    Values items;
    for (const auto& item : json) items.push_back(value_of(what, item));
    return make_list(std::move(items));
  }
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [key, item] : json.items()) items.emplace_back(key, value_of(what, item));
  return make_dict(std::move(items));
}

Value value_of_json(const std::string& what, std::string_view text) {
  int deepest = 0;
  const auto measure = [&](int depth, auto, auto&) {
    return (deepest = std::max(deepest, depth)) <= kDeepestValue;
  };
  const auto json = nlohmann::ordered_json::parse(text, measure, false);
  if (deepest > kDeepestValue) {
    fail(what, ": the text is more than ", kDeepestValue, " levels deep, expected fewer");
  }
  if (json.is_discarded()) fail(what, ": the text is not JSON, expected JSON");
  return value_of(what, json);
}

}  // namespace weft::jinja
