// SPDX-License-Identifier: Apache-2.0
#include "data/template/value.h"

#include <algorithm>
#include <cmath>

#include "data/unicode/unicode.h"
#include "weft/error.h"

namespace weft::jinja {

/// Equal values have equal hashes.
static size_t hash_of(const Value& value) {
  if (const auto number = number_of(value)) return std::hash<double>()(*number);
  if (const std::string* text = value.text()) return std::hash<std::string>()(*text);
  size_t hash = value.any().index();
  if (const List* list = value.to<List>(); list && list->kind != List::Kind::iterator) {
    for (const Value& item : list->items) hash = hash * 31 + hash_of(item);
  }
  return hash;
}

const Value* Dict::find(const Value& key) const {
  const auto [begin, end] = places.equal_range(hash_of(key));
  const auto found = std::find_if(
      begin, end, [&](const auto& place) { return equal(items[place.second].first, key); });
  return found == end ? nullptr : &items[found->second].second;
}

void Dict::set(const Value& key, Value value) {
  if (const Value* found = find(key)) {
    *const_cast<Value*>(found) = std::move(value);
  } else {
    places.emplace(hash_of(key), items.size());
    items.emplace_back(key, std::move(value));
  }
}

int depth_of(const Value& value) {
  if (const List* list = value.to<List>()) return list->depth;
  const Dict* dict = value.to<Dict>();
  return dict && !dict->is_namespace ? dict->depth : 0;
}

size_t weight_of(const Value& value) {
  if (const std::string* text = value.text()) return 1 + text->size() / 16;
  if (const List* list = value.to<List>()) return list->weight;
  const Dict* dict = value.to<Dict>();
  return dict && !dict->is_namespace ? dict->weight : 1;
}

/// Counts a value that a list or dict holds.
template <class Holder> static void count(Holder& holder, const Value& value) {
  holder.depth = std::max(holder.depth, depth_of(value) + 1);
  holder.weight += weight_of(value);
  if (holder.depth > kDeepestValue) {
    fail("chat template: lists and dicts are ", holder.depth,
         " deep in each other, expected at most ", kDeepestValue);
  }
  if (holder.weight > kMostWork) {
    fail("chat template: lists and dicts have more than ", kMostWork,
         " values in each other, expected fewer");
  }
}

Value make_list(Values items, List::Kind kind) {
  List list{kind, std::move(items)};
  for (const Value& item : list.items) count(list, item);
  return std::make_shared<List>(std::move(list));
}

Value make_dict(std::vector<std::pair<Value, Value>> items, bool is_namespace) {
  auto dict = std::make_shared<Dict>(Dict{{}, is_namespace});
  for (auto& [key, value] : items) {
    count(*dict, key);
    count(*dict, value);
    dict->set(key, std::move(value));
  }
  return dict;
}

Value make_function(std::string name, std::function<Value(Call&)> call) {
  return std::make_shared<Function>(Function{std::move(name), std::move(call)});
}

std::string type_name(const Value& value) {
  static constexpr const char* kNames[] = {"Undefined", "NoneType", "bool", "int",  "float",
                                           "str",       "list",     "dict", "loop", "function"};
  static constexpr const char* kLists[] = {"list",       "tuple", "dict_keys", "dict_values",
                                           "dict_items", "range", "iterator"};
  if (const List* list = value.to<List>()) return kLists[static_cast<int>(list->kind)];
  if (const Dict* dict = value.to<Dict>(); dict && dict->is_namespace) return "namespace";
  return kNames[value.any().index()];
}

bool is_true(const Value& value) {
  if (const bool* flag = value.as<bool>()) return *flag;
  if (const auto number = number_of(value)) return *number != 0;
  if (const std::string* text = value.text()) return !text->empty();
  if (const List* list = value.to<List>()) {
    return list->kind == List::Kind::iterator || !list->items.empty();
  }
  if (const Dict* dict = value.to<Dict>()) return dict->is_namespace || !dict->items.empty();
  return !value.is_undefined() && !value.is_none();
}

bool can_change(const Value& value) {
  const List* list = value.to<List>();
  if (list && list->kind == List::Kind::tuple) return std::ranges::any_of(list->items, can_change);
  return value.to<Dict>() || (list && list->kind == List::Kind::list);
}

std::optional<int64_t> whole_of(const Value& value) {
  if (const bool* flag = value.as<bool>()) return *flag;
  const int64_t* whole = value.as<int64_t>();
  return whole ? std::optional(*whole) : std::nullopt;
}

std::optional<double> number_of(const Value& value) {
  if (const double* number = value.as<double>()) return *number;
  const auto whole = whole_of(value);
  return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
}

static bool equal_lists(const List& a, const List& b) {
  if (&a == &b) return true;
  if (a.kind != b.kind || a.kind == List::Kind::iterator) return false;
  return std::ranges::equal(a.items, b.items, equal);
}

static bool equal_dicts(const Dict& a, const Dict& b) {
  if (&a == &b) return true;
  if (a.is_namespace || b.is_namespace || a.items.size() != b.items.size()) return false;
  return std::ranges::all_of(a.items, [&](const auto& item) {
    const Value* found = b.find(item.first);
    return found && equal(item.second, *found);
  });
}

bool equal(const Value& a, const Value& b) {
  if (const auto left = whole_of(a), right = whole_of(b); left && right) return *left == *right;
  if (const auto left = number_of(a), right = number_of(b); left && right) return *left == *right;
  if (a.any().index() != b.any().index()) return false;
  if (const std::string* text = a.text()) return text == b.text() || *text == *b.text();
  if (const List* list = a.to<List>()) return equal_lists(*list, *b.to<List>());
  if (const Dict* dict = a.to<Dict>()) return equal_dicts(*dict, *b.to<Dict>());
  if (a.to<Loop>()) return a.to<Loop>() == b.to<Loop>();
  return !a.to<Function>() || a.to<Function>() == b.to<Function>();
}

bool less(const Value& a, const Value& b) {
  if (const auto left = whole_of(a), right = whole_of(b); left && right) return *left < *right;
  if (const auto left = number_of(a), right = number_of(b); left && right) return *left < *right;
  if (a.text() && b.text()) return *a.text() < *b.text();
  const List *left = a.to<List>(), *right = b.to<List>();
  if (left && right && left->kind == right->kind && left->kind <= List::Kind::tuple) {
    const auto [at, other] = std::ranges::mismatch(left->items, right->items, equal);
    if (at == left->items.end() || other == right->items.end()) {
      return left->items.size() < right->items.size();
    }
    return less(*at, *other);
  }
  fail("chat template: a comparison has ", type_name(a), " and ", type_name(b),
       ", expected two values that have an order");
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> made;
  for (size_t at = 0, bytes; at < text.size(); at += bytes) {
    bytes = text::code_point_at(text, at).bytes;
    made.push_back(text.substr(at, bytes));
  }
  return made;
}

size_t length_of(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace weft::jinja
