// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "data/template/run.h"

namespace weft::jinja {

static Value missing_value(const char* what) {
  return Undefined{std::make_shared<const std::string>(what)};
}

static bool is_kind(const Value& value, List::Kind kind) {
  return value.to<List>() && value.to<List>()->kind == kind;
}

static size_t size_of(const Call& call, const Value& value) {
  const List* list = value.to<List>();
  const Dict* dict = value.to<Dict>();
  if (value.text()) return length_of(*value.text());
  if (list && list->kind != List::Kind::iterator) return list->items.size();
  if (dict && !dict->is_namespace) return dict->items.size();
  if (value.to<Loop>()) return value.to<Loop>()->items.size();
  if (value.is_undefined()) return 0;
  call.run.refuse(call.name, value, "one with a length");
}

static Value length(Call& call) { return size_of(call, *call.bind({"value"}, 1)[0]); }

static Value default_of(Call& call) {
  const auto bound = call.bind({"value", "default_value", "boolean"}, 1);
  const Value& value = *bound[0];
  const bool is_used = value.is_undefined() || (flag_or(bound[2], false) && !is_true(value));
  return is_used ? bound[1].value_or("") : value;
}

static Value list_of(Call& call) {
  return make_list(call.run.elements(*call.bind({"value"}, 1)[0], "list"));
}

/// An attribute's path, with dots and numbers in it, of a value.
static Value along(Run& run, Value value, const Value& path,
                   const std::optional<Value>& otherwise) {
  if (path.is_none()) return value;
  if (!path.text()) return run.item(value, path);
  std::string_view rest = *path.text();
  while (true) {
    const std::string part(rest.substr(0, rest.find('.')));
    const bool is_number =
        !part.empty() && part.find_first_not_of("0123456789") == part.npos && part.size() < 10;
    value = run.item(value, is_number ? Value(int64_t{std::stol(part)}) : Value(part));
    if (value.is_undefined() && otherwise && !otherwise->is_none()) value = *otherwise;
    if (rest.size() == part.size()) return value;
    rest.remove_prefix(part.size() + 1);
  }
}

static Value lowered(Run& run, const Value& value, bool keeps_case) {
  return value.text() && !keeps_case ? Value(in_case(run, *value.text(), Case::lower)) : value;
}

/// Elements in the order of their keys.
static void sort_by_keys(Run& run, Values& items, const Values& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  // Equal elements keep their order in both directions.
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return reverse ? run.is_less(keys[b], keys[a]) : run.is_less(keys[a], keys[b]);
  });
  Values sorted;
  for (const size_t at : order) sorted.push_back(items[at]);
  items = std::move(sorted);
}

static Value sort_filter(Call& call) {
  const auto bound = call.bind({"value", "reverse", "case_sensitive", "attribute"}, 1);
  Values items = call.run.elements(*bound[0], "sort"), keys;
  const Value path = bound[3].value_or(None{});
  const bool keeps_case = flag_or(bound[2], false);
  for (const Value& item : items) {
    std::string_view rest = path.text() ? std::string_view(*path.text()) : "";
    Values parts;
    do {
      const std::string_view part = rest.substr(0, rest.find(','));
      const Value one = path.text() ? Value(part) : path;
      parts.push_back(lowered(call.run, along(call.run, item, one, {}), keeps_case));
      rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    } while (!rest.empty());
    keys.push_back(make_list(std::move(parts)));
  }
  sort_by_keys(call.run, items, keys, flag_or(bound[1], false));
  return make_list(std::move(items));
}

/// The pairs of a dict as tuples.
static Values pairs_of(Call& call, const Value& value) {
  const Dict* dict = value.to<Dict>();
  if (!dict || dict->is_namespace) call.run.refuse(call.name, value, "a dict");
  Values made;
  for (const auto& [key, item] : dict->items)
    made.push_back(make_list({key, item}, List::Kind::tuple));
  call.run.spend(4 * made.size());
  return made;
}

static Value dictsort(Call& call) {
  const auto bound = call.bind({"value", "case_sensitive", "by", "reverse"}, 1);
  const std::string by = text_or(call, bound[2], "key");
  if (by != "key" && by != "value") {
    call.run.refuse(concat("dictsort is by ", in_quotes(by), ", expected key or value"));
  }
  Values items = pairs_of(call, *bound[0]), keys;
  for (const Value& pair : items) {
    const Value& key = pair.to<List>()->items[by == "key" ? 0 : 1];
    keys.push_back(lowered(call.run, key, flag_or(bound[1], false)));
  }
  sort_by_keys(call.run, items, keys, flag_or(bound[3], false));
  return make_list(std::move(items));
}

static Value items_filter(Call& call) {
  const Value value = *call.bind({"value"}, 1)[0];
  return make_list(value.is_undefined() ? Values{} : pairs_of(call, value), List::Kind::iterator);
}

static Value join_filter(Call& call) {
  const auto bound = call.bind({"value", "d", "attribute"}, 1);
  const std::string between = text_or(call, bound[1], "");
  std::string made;
  bool is_first = true;
  for (const Value& item : call.run.elements(*bound[0], "join")) {
    if (!std::exchange(is_first, false)) made += between;
    const std::string part = call.run.printed(along(call.run, item, bound[2].value_or(None{}), {}));
    call.run.spend_text(part.size() + between.size() + 16);
    made += part;
  }
  return made;
}

static Value first(Call& call) {
  const Values items = call.run.elements(*call.bind({"seq"}, 1)[0], "first");
  return items.empty() ? missing_value("the first of no elements") : items[0];
}

static Value last(Call& call) {
  const Value value = *call.bind({"seq"}, 1)[0];
  if (is_kind(value, List::Kind::iterator)) call.run.refuse("last", value, "a list");
  const Values items = call.run.elements(value, "last");
  return items.empty() ? missing_value("the last of no elements") : items.back();
}

static Value extreme(Call& call, bool is_largest) {
  const auto bound = call.bind({"value", "case_sensitive", "attribute"}, 1);
  const Values items = call.run.elements(*bound[0], call.name);
  const auto key = [&](const Value& item) {
    const Value value = along(call.run, item, bound[2].value_or(None{}), {});
    return lowered(call.run, value, flag_or(bound[1], false));
  };
  if (items.empty()) return missing_value("the extreme of no elements");
  const Value* best = &items[0];
  for (const Value& item : items) {
    const Value known = key(*best), other = key(item);
    if (is_largest ? call.run.is_less(known, other) : call.run.is_less(other, known)) best = &item;
  }
  return *best;
}

static Value reverse_filter(Call& call) {
  const Value value = *call.bind({"value"}, 1)[0];
  if (const std::string* text = value.text()) {
    auto all = characters(*text);
    std::ranges::reverse(all);
    return Value(listed(all, {}, ""), value.is_safe());
  }
  Values items = call.run.elements(value, "reverse");
  std::ranges::reverse(items);
  const bool is_list = is_kind(value, List::Kind::iterator);
  return make_list(std::move(items), is_list ? List::Kind::list : List::Kind::iterator);
}

static Value sum(Call& call) {
  const auto bound = call.bind({"iterable", "attribute", "start"}, 1);
  Value total = bound[2].value_or(0);
  for (const Value& item : call.run.elements(*bound[0], "sum")) {
    total = call.run.binary("+", total, along(call.run, item, bound[1].value_or(None{}), {}));
  }
  return total;
}

static Value unique(Call& call) {
  const auto bound = call.bind({"value", "case_sensitive", "attribute"}, 1);
  Values made, keys;
  for (const Value& item : call.run.elements(*bound[0], "unique")) {
    const Value value = along(call.run, item, bound[2].value_or(None{}), {});
    const Value key = lowered(call.run, value, flag_or(bound[1], false));
    call.run.spend(weight_of(key));
    if (can_change(key)) {
      call.run.refuse("unique", key, "a value that cannot change");
    }
    const auto is_key = [&](const Value& known) { return call.run.are_equal(known, key); };
    if (std::ranges::any_of(keys, is_key)) continue;
    keys.push_back(key);
    made.push_back(item);
  }
  return make_list(std::move(made), List::Kind::iterator);
}

static Value map_filter(Call& call) {
  if (!is_true(call.plain[0])) return make_list({}, List::Kind::iterator);
  Values items = call.run.elements(call.plain[0], "map");
  if (call.plain.size() == 1) {
    const auto bound = call.bind({"value", "attribute", "default"}, 2);
    for (Value& item : items) item = along(call.run, item, *bound[1], bound[2]);
    return make_list(std::move(items), List::Kind::iterator);
  }
  const std::string name = call.run.printed(call.plain[1]);
  for (Value& item : items) {
    Call one{call.run, name, {item}, call.named};
    one.plain.insert(one.plain.end(), call.plain.begin() + 2, call.plain.end());
    item = call.run.filter(name, one);
  }
  return make_list(std::move(items), List::Kind::iterator);
}

/// Elements for which a test holds, or does not; `by_attribute`: a test of their attribute.
template <bool keeps, bool by_attribute> static Value chosen(Call& call) {
  const size_t at = by_attribute ? 2 : 1;
  if (call.plain.size() < at) call.run.refuse(concat(call.name, " has no attribute, expected one"));
  Values made;
  if (!is_true(call.plain[0])) return make_list({}, List::Kind::iterator);
  for (const Value& item : call.run.elements(call.plain[0], call.name)) {
    const Value value = by_attribute ? along(call.run, item, call.plain[1], {}) : item;
    bool holds = is_true(value);
    if (call.plain.size() > at) {
      const std::string name = call.run.printed(call.plain[at]);
      Call one{call.run, name, {value}, call.named};
      one.plain.insert(one.plain.end(), call.plain.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                       call.plain.end());
      holds = call.run.test(name, one);
    }
    if (holds == keeps) made.push_back(item);
  }
  return make_list(std::move(made), List::Kind::iterator);
}

static Value groupby(Call& call) {
  const auto bound = call.bind({"value", "attribute", "default", "case_sensitive"}, 2);
  const bool keeps_case = flag_or(bound[3], false);
  Values items = call.run.elements(*bound[0], "groupby"), keys;
  const auto own_key = [&](const Value& item) {
    return along(call.run, item, *bound[1], bound[2]);
  };
  for (const Value& item : items) keys.push_back(lowered(call.run, own_key(item), keeps_case));
  sort_by_keys(call.run, items, keys, false);
  Values groups, members;
  for (size_t i = 0; i < items.size(); ++i) {
    const Value key = lowered(call.run, own_key(items[i]), keeps_case);
    members.push_back(items[i]);
    const bool is_last =
        i + 1 == items.size() ||
        !call.run.are_equal(key, lowered(call.run, own_key(items[i + 1]), keeps_case));
    if (!is_last) continue;
    const Value named = own_key(members[0]);
    groups.push_back(make_list({named, make_list(std::exchange(members, {}))}, List::Kind::tuple));
  }
  return make_list(std::move(groups));
}

static Value batch(Call& call) {
  const auto bound = call.bind({"value", "linecount", "fill_with"}, 2);
  const auto size = static_cast<size_t>(std::max<int64_t>(whole_or(call, bound[1], 1), 1));
  Values rows, row;
  for (const Value& item : call.run.elements(*bound[0], "batch")) {
    if (row.size() == size) rows.push_back(make_list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    const bool fills = bound[2] && !bound[2]->is_none();
    if (fills) call.run.spend(size);
    while (fills && row.size() < size) row.push_back(*bound[2]);
    rows.push_back(make_list(std::move(row)));
  }
  return make_list(std::move(rows), List::Kind::iterator);
}

static Value attr(Call& call) {
  const auto bound = call.bind({"obj", "name"}, 2);
  const bool is_dict = bound[0]->to<Dict>() && !bound[0]->to<Dict>()->is_namespace;
  const std::string name = call.run.printed(*bound[1]);
  if (is_dict && !method_of(*bound[0], name)) return missing_value("an attribute");
  return call.run.attribute(*bound[0], name);
}

Filter list_filter(const std::string& name) {
  static const std::map<std::string, Filter> filters = {
      {"length", length},
      {"count", length},
      {"default", default_of},
      {"d", default_of},
      {"list", list_of},
      {"sort", sort_filter},
      {"dictsort", dictsort},
      {"items", items_filter},
      {"join", join_filter},
      {"first", first},
      {"last", last},
      {"min", [](Call& call) { return extreme(call, false); }},
      {"max", [](Call& call) { return extreme(call, true); }},
      {"reverse", reverse_filter},
      {"sum", sum},
      {"unique", unique},
      {"map", map_filter},
      {"select", chosen<true, false>},
      {"reject", chosen<false, false>},
      {"selectattr", chosen<true, true>},
      {"rejectattr", chosen<false, true>},
      {"groupby", groupby},
      {"batch", batch},
      {"attr", attr}};
  const auto found = filters.find(name);
  return found == filters.end() ? nullptr : found->second;
}

}  // namespace weft::jinja
