// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>

#include "data/template/run.h"
#include "data/unicode/unicode.h"

namespace weft::jinja {

using Method = Value (*)(Call& call, const Value& self);

/// The text that the method is of.
static const std::string& own(const Value& self) { return *self.text(); }

static std::string text_argument(const Call& call, const std::optional<Value>& value) {
  if (value && value->text()) return *value->text();
  call.run.refuse(call.name, value.value_or(None{}), "a str");
}

static bool is_given(const std::optional<Value>& value) { return value && !value->is_none(); }

/// The parts between white space, at most so many cuts from one end.
static Values words(std::string_view text, int64_t most, bool from_end) {
  Values made;
  text = text::stripped(text, !from_end, from_end, is_space);
  while (!text.empty()) {
    std::string_view word = text;
    if (most-- != 0) {
      size_t at = from_end ? text.size() : 0;
      while (from_end ? at > 0 : at < text.size()) {
        const size_t here = from_end ? text::character_before(text, at) : at;
        const text::CodePoint c = text::code_point_at(text, here);
        if (is_space(c.value)) break;
        at = from_end ? here : at + c.bytes;
      }
      word = from_end ? text.substr(at) : text.substr(0, at);
    }
    made.emplace_back(word);
    text = from_end ? text.substr(0, text.size() - word.size()) : text.substr(word.size());
    text = text::stripped(text, !from_end, from_end, is_space);
  }
  if (from_end) std::ranges::reverse(made);
  return made;
}

static Value split(Call& call, const Value& self, bool from_end) {
  const auto bound = call.bind({"sep", "maxsplit"});
  int64_t most = whole_or(call, bound[1], -1);
  call.run.spend(own(self).size() / 4);
  if (!is_given(bound[0])) return make_list(words(own(self), most, from_end));
  const std::string between = text_argument(call, bound[0]);
  if (between.empty()) call.run.refuse("split has an empty text, expected one with characters");
  Values made;
  std::string_view rest = own(self);
  while (most-- != 0) {
    const size_t at = from_end ? rest.rfind(between) : rest.find(between);
    if (at == rest.npos) break;
    const std::string_view after = rest.substr(at + between.size());
    made.emplace_back(from_end ? after : rest.substr(0, at));
    rest = from_end ? rest.substr(0, at) : after;
  }
  made.emplace_back(rest);
  if (from_end) std::ranges::reverse(made);
  return make_list(std::move(made));
}

static Value partition(Call& call, const Value& self, bool from_end) {
  const std::string between = text_argument(call, call.bind({"sep"}, 1)[0]);
  if (between.empty()) call.run.refuse("partition has an empty text, expected one with characters");
  const std::string& text = own(self);
  const size_t at = from_end ? text.rfind(between) : text.find(between);
  Values parts = {text, "", ""};
  if (at == text.npos) {
    if (from_end) std::swap(parts[0], parts[2]);
  } else {
    parts = {text.substr(0, at), between, text.substr(at + between.size())};
  }
  return make_list(std::move(parts), List::Kind::tuple);
}

static Value strip(Call& call, const Value& self, bool left, bool right) {
  call.run.spend_text(own(self).size());
  return std::string(trimmed(call.run, own(self), call.bind({"chars"})[0], left, right));
}

/// The characters of the part of the text that find, count and startswith look at.
static std::string part_of(const Call& call, const Value& self, const Call::Bound& bound,
                           int64_t& begin) {
  call.run.spend_text(own(self).size());
  const auto size = static_cast<int64_t>(length_of(own(self)));
  const auto place = [&](const std::optional<Value>& given, int64_t otherwise) {
    const int64_t at = is_given(given) ? whole_or(call, given, 0) : otherwise;
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  begin = place(bound[1], 0);
  const int64_t end = place(bound[2], size);
  if (begin == 0 && end == size) return own(self);
  std::string made;
  const auto all = characters(own(self));
  for (int64_t at = begin; at < end; ++at) made += all[static_cast<size_t>(at)];
  return made;
}

static Value begins_or_ends(Call& call, const Value& self, bool ends) {
  const auto bound = call.bind({ends ? "suffix" : "prefix", "start", "end"}, 1);
  int64_t begin = 0;
  const std::string part = part_of(call, self, bound, begin);
  const List* several = bound[0]->to<List>();
  const bool is_tuple = several && several->kind == List::Kind::tuple;
  const Values wanted = is_tuple ? several->items : Values{*bound[0]};
  return std::ranges::any_of(wanted, [&](const Value& one) {
    const std::string text = text_argument(call, one);
    return ends ? part.ends_with(text) : part.starts_with(text);
  });
}

/// Returns the position of a text, in characters; -1 if the text is missing.
static int64_t found_at(Call& call, const Value& self, bool from_end) {
  const auto bound = call.bind({"sub", "start", "end"}, 1);
  int64_t begin = 0;
  const std::string part = part_of(call, self, bound, begin);
  const std::string wanted = text_argument(call, bound[0]);
  const size_t at = from_end ? part.rfind(wanted) : part.find(wanted);
  if (at == part.npos) return -1;
  return begin + static_cast<int64_t>(length_of(std::string_view(part).substr(0, at)));
}

static Value index(Call& call, const Value& self, bool from_end) {
  const int64_t at = found_at(call, self, from_end);
  if (at < 0) call.run.refuse("index finds nothing, expected a part of the text");
  return at;
}

static Value count(Call& call, const Value& self) {
  const auto bound = call.bind({"sub", "start", "end"}, 1);
  int64_t begin = 0, found = 0;
  const std::string part = part_of(call, self, bound, begin);
  const std::string wanted = text_argument(call, bound[0]);
  if (wanted.empty()) return length_of(part) + 1;
  for (size_t at = 0; (at = part.find(wanted, at)) != part.npos; at += wanted.size()) ++found;
  return found;
}

static Value replace(Call& call, const Value& self) {
  const auto bound = call.bind({"old", "new", "count"}, 2);
  return replaced(call.run, own(self), text_argument(call, bound[0]), text_argument(call, bound[1]),
                  whole_or(call, bound[2], -1));
}

static Value join(Call& call, const Value& self) {
  std::string made;
  bool is_first = true;
  for (const Value& item : call.run.elements(*call.bind({"iterable"}, 1)[0], "join")) {
    if (!std::exchange(is_first, false)) made += own(self);
    made += text_argument(call, item);
    call.run.spend_text(own(self).size() + item.text()->size());
  }
  return made;
}

static Value without(Call& call, const Value& self, bool is_prefix) {
  const std::string part = text_argument(call, call.bind({is_prefix ? "prefix" : "suffix"}, 1)[0]);
  const std::string& text = own(self);
  if (is_prefix) return text.starts_with(part) ? text.substr(part.size()) : text;
  return text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text;
}

static Value padded(Call& call, const Value& self, int left_part, char otherwise) {
  const auto bound = call.bind({"width", "fillchar"}, 1);
  const auto width = whole_or(call, bound[0], 0);
  const auto size = static_cast<int64_t>(length_of(own(self)));
  const std::string fill = bound[1] ? text_argument(call, bound[1]) : std::string(1, otherwise);
  if (length_of(fill) != 1) call.run.refuse("the padding is not one character, expected one");
  const int64_t missing = std::max<int64_t>(width - size, 0);
  call.run.spend(static_cast<size_t>(missing));
  const int64_t half = missing / 2 + (missing & width & 1);
  const int64_t left = left_part == 0 ? 0 : left_part == 2 ? missing : half;
  std::string before, after;
  for (int64_t i = 0; i < missing; ++i) (i < left ? before : after) += fill;
  return before + own(self) + after;
}

static Value zeros(Call& call, const Value& self) {
  const std::string& text = own(self);
  const bool has_sign = text.starts_with('-') || text.starts_with('+');
  const int64_t width = whole_or(call, call.bind({"width"}, 1)[0], 0);
  const int64_t missing = std::max<int64_t>(width - static_cast<int64_t>(length_of(text)), 0);
  call.run.spend(static_cast<size_t>(missing));
  const size_t sign = has_sign ? 1 : 0;
  return text.substr(0, sign) + std::string(static_cast<size_t>(missing), '0') + text.substr(sign);
}

/// True when there are characters, and each is in a class.
template <class Belongs> static Value all_are(const Value& self, const Belongs& belongs) {
  const auto all = characters(own(self));
  return !all.empty() && std::ranges::all_of(all, [&](std::string_view c) {
    return belongs(text::code_point_at(c, 0).value);
  });
}

static Value in_case_of(Call& call, const Value& self, Case wanted) {
  return in_case(call.run, own(self), wanted);
}

/// Words of letters with a large first letter, as str.title has them.
static Value title(Call& call, const Value& self) {
  std::string made;
  bool follows_letter = false;
  for (const std::string_view c : characters(own(self))) {
    made += in_case(call.run, c, follows_letter ? Case::lower : Case::title);
    follows_letter = text::is_letter(text::code_point_at(c, 0).value);
  }
  return made;
}

static Value lines(Call& call, const Value& self) {
  Values made;
  for (const auto line : lines_of(own(self), flag_or(call.bind({"keepends"})[0], false))) {
    made.emplace_back(line);
  }
  call.run.spend(made.size());
  return make_list(std::move(made));
}

static const std::map<std::string, Method>& text_methods() {
  static const std::map<std::string, Method> methods = {
      {"split", [](Call& c, const Value& s) { return split(c, s, false); }},
      {"rsplit", [](Call& c, const Value& s) { return split(c, s, true); }},
      {"partition", [](Call& c, const Value& s) { return partition(c, s, false); }},
      {"rpartition", [](Call& c, const Value& s) { return partition(c, s, true); }},
      {"strip", [](Call& c, const Value& s) { return strip(c, s, true, true); }},
      {"lstrip", [](Call& c, const Value& s) { return strip(c, s, true, false); }},
      {"rstrip", [](Call& c, const Value& s) { return strip(c, s, false, true); }},
      {"startswith", [](Call& c, const Value& s) { return begins_or_ends(c, s, false); }},
      {"endswith", [](Call& c, const Value& s) { return begins_or_ends(c, s, true); }},
      {"find", [](Call& c, const Value& s) -> Value { return found_at(c, s, false); }},
      {"rfind", [](Call& c, const Value& s) -> Value { return found_at(c, s, true); }},
      {"index", [](Call& c, const Value& s) { return index(c, s, false); }},
      {"rindex", [](Call& c, const Value& s) { return index(c, s, true); }},
      {"count", count},
      {"replace", replace},
      {"join", join},
      {"removeprefix", [](Call& c, const Value& s) { return without(c, s, true); }},
      {"removesuffix", [](Call& c, const Value& s) { return without(c, s, false); }},
      {"ljust", [](Call& c, const Value& s) { return padded(c, s, 0, ' '); }},
      {"center", [](Call& c, const Value& s) { return padded(c, s, 1, ' '); }},
      {"rjust", [](Call& c, const Value& s) { return padded(c, s, 2, ' '); }},
      {"zfill", zeros},
      {"upper", [](Call& c, const Value& s) { return in_case_of(c, s, Case::upper); }},
      {"lower", [](Call& c, const Value& s) { return in_case_of(c, s, Case::lower); }},
      {"capitalize", [](Call& c, const Value& s) { return in_case_of(c, s, Case::capital); }},
      {"title", title},
      {"splitlines", lines},
      {"format", [](Call& c, const Value& s) -> Value { return brace_format(c, own(s)); }},
      {"isspace", [](Call&, const Value& s) { return all_are(s, is_space); }},
      {"isalpha", [](Call&, const Value& s) { return all_are(s, text::is_letter); }},
      {"isdigit", [](Call&, const Value& s) { return all_are(s, text::is_digit); }}};
  return methods;
}

static Value pairs(const Dict& dict, List::Kind kind) {
  Values made;
  for (const auto& [key, value] : dict.items) {
    made.push_back(kind == List::Kind::keys     ? key
                   : kind == List::Kind::values ? value
                                                : make_list({key, value}, List::Kind::tuple));
  }
  return make_list(std::move(made), kind);
}

static Value get(Call& call, const Value& self) {
  const auto bound = call.bind({"key", "default"}, 1);
  call.run.spend(weight_of(*bound[0]));
  const Value* found = self.to<Dict>()->find(*bound[0]);
  return found ? *found : bound[1].value_or(None{});
}

template <List::Kind kind> static Value view(Call& call, const Value& self) {
  call.bind({});
  call.run.spend(4 * self.to<Dict>()->items.size());
  return pairs(*self.to<Dict>(), kind);
}

static Value list_index(Call& call, const Value& self) {
  const Values& items = self.to<List>()->items;
  const Value wanted = *call.bind({"value"}, 1)[0];
  const auto found = std::ranges::find_if(
      items, [&](const auto& item) { return call.run.are_equal(item, wanted); });
  if (found == items.end()) call.run.refuse("index finds nothing, expected an element of the list");
  return static_cast<int64_t>(found - items.begin());
}

static Value list_count(Call& call, const Value& self) {
  const Value wanted = *call.bind({"value"}, 1)[0];
  return static_cast<int64_t>(std::ranges::count_if(
      self.to<List>()->items, [&](const auto& item) { return call.run.are_equal(item, wanted); }));
}

/// Python's other methods of the type: they exist, but a call of one is refused.
static const std::set<std::string>& unknown_methods(const Value& value) {
  static const std::set<std::string> none;
  static const std::set<std::string> of_text = {
      "casefold",  "encode",       "expandtabs", "format_map", "isalnum",     "isascii",
      "isdecimal", "isidentifier", "islower",    "isnumeric",  "isprintable", "istitle",
      "isupper",   "maketrans",    "swapcase",   "translate"};
  static const std::set<std::string> of_list = {"append", "clear",  "copy",    "extend", "insert",
                                                "pop",    "remove", "reverse", "sort"};
  static const std::set<std::string> of_dict = {"clear",   "copy",       "fromkeys", "pop",
                                                "popitem", "setdefault", "update"};
  if (value.text()) return of_text;
  if (value.to<Dict>()) return of_dict;
  const List* list = value.to<List>();
  return list && list->kind == List::Kind::list ? of_list : none;
}

static Method known_method(const Value& value, const std::string& name) {
  const List* list = value.to<List>();
  if (value.text()) {
    const auto found = text_methods().find(name);
    return found == text_methods().end() ? nullptr : found->second;
  }
  if (value.to<Dict>()) {
    if (name == "get") return get;
    if (name == "keys") return view<List::Kind::keys>;
    if (name == "values") return view<List::Kind::values>;
    if (name == "items") return view<List::Kind::items>;
  }
  const bool has_places =
      list && (list->kind <= List::Kind::tuple || list->kind == List::Kind::range);
  if (has_places && name == "index") return list_index;
  if (has_places && name == "count") return list_count;
  return nullptr;
}

/// A method of Markup: it escapes what it takes in, and returns Markup.
static Value of_safe(Method method, Call& call, const Value& self) {
  const bool takes_in = call.name == "replace" && call.plain.size() > 1;
  if (takes_in && call.plain[1].text() && !call.plain[1].is_safe()) {
    call.plain[1] = Value(html_escaped(*call.plain[1].text()));
  }
  if (call.name == "join" || call.name == "format") call.run.refuse(call.name, self, "a plain str");
  const Value made = method(call, self);
  if (made.text()) return Value(*made.text(), true);
  const List* list = made.to<List>();
  if (!list) return made;
  Values parts;
  for (const Value& part : list->items) parts.emplace_back(*part.text(), true);
  return make_list(std::move(parts), list->kind);
}

std::optional<Value> method_of(const Value& value, const std::string& name) {
  const Dict* dict = value.to<Dict>();
  if (dict && dict->is_namespace) return {};
  const Method method = known_method(value, name);
  if (method && value.is_safe()) {
    return make_function(name,
                         [method, value](Call& call) { return of_safe(method, call, value); });
  }
  if (method) {
    return make_function(name, [method, value](Call& call) { return method(call, value); });
  }
  if (!unknown_methods(value).contains(name)) return {};
  return make_function(name, [type = type_name(value)](Call& call) -> Value {
    call.run.refuse(concat("the method ", call.name, " of a ", type,
                           " is called, expected one that weft has; no value can be changed"));
  });
}

}  // namespace weft::jinja
