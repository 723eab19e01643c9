// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "data/template/run.h"

namespace weft::jinja {

static Value missing(std::string what) {
  return Undefined{std::make_shared<const std::string>(std::move(what))};
}

/// Returns a field of the variable `loop`, or nothing if the name is unknown.
static std::optional<Value> of_loop(const std::shared_ptr<Loop>& loop, const std::string& name) {
  const size_t at = loop->at, size = loop->items.size();
  if (name == "index") return at + 1;
  if (name == "index0") return at;
  if (name == "revindex") return size - at;
  if (name == "revindex0") return size - at - 1;
  if (name == "first") return at == 0;
  if (name == "last") return at + 1 == size;
  if (name == "length") return size;
  // The depth of recursive loops, which are refused.
  if (name == "depth") return 1;
  if (name == "depth0") return 0;
  if (name == "previtem") {
    return at > 0 ? loop->items[at - 1] : missing("the item before the first");
  }
  if (name == "nextitem") {
    return at + 1 < size ? loop->items[at + 1] : missing("the item after the last");
  }
  if (name == "cycle") {
    return make_function(name, [loop](Call& call) {
      if (call.plain.empty()) call.run.refuse("cycle has 0 arguments, expected at least 1");
      return call.plain[loop->at % call.plain.size()];
    });
  }
  if (name != "changed") return {};
  return make_function(name, [loop](Call& call) -> Value {
    const auto equals = [&](const Value& a, const Value& b) { return call.run.are_equal(a, b); };
    const bool same = loop->has_changed && std::ranges::equal(loop->changed, call.plain, equals);
    loop->has_changed = true;
    loop->changed = call.plain;
    return !same;
  });
}

Value Run::attribute(const Value& value, const std::string& name) {
  if (value.is_undefined()) refuse(weft::concat("the attribute ", name), value, "a value");
  const bool is_plain = !value.to<Dict>() || !value.to<Dict>()->is_namespace;
  if (name.starts_with("__") && is_plain) {
    refuse(weft::concat("the attribute is ", in_quotes(name), ", expected none of Python's own"));
  }
  if (is_plain) {
    if (const auto method = method_of(value, name)) return *method;
  }
  if (const Dict* dict = value.to<Dict>()) {
    if (const Value* found = dict->find(name)) return *found;
  }
  if (const auto* loop = value.as<std::shared_ptr<Loop>>()) {
    if (const auto found = of_loop(*loop, name)) return *found;
  }
  return missing(weft::concat(in_quotes(name), " of a ", type_name(value)));
}

/// The place of an index of Python, or nothing.
static std::optional<size_t> place(int64_t index, size_t size) {
  if (index < 0) index += static_cast<int64_t>(size);
  if (index < 0 || index >= static_cast<int64_t>(size)) return {};
  return static_cast<size_t>(index);
}

Value Run::item(const Value& value, const Value& key) {
  if (value.is_undefined()) refuse("a key", value, "a value");
  const auto index = whole_of(key);
  const List* list = value.to<List>();
  const bool has_places =
      list && (list->kind <= List::Kind::tuple || list->kind == List::Kind::range);
  if (const Dict* dict = value.to<Dict>()) {
    spend(weight_of(key));
    if (const Value* found = dict->find(key)) return *found;
  } else if (has_places && index) {
    if (const auto at = place(*index, list->items.size())) return list->items[*at];
  } else if (value.text() && index) {
    spend_text(value.text()->size());
    const auto all = characters(*value.text());
    if (const auto at = place(*index, all.size()))
      return Value(std::string(all[*at]), value.is_safe());
  }
  if (const std::string* name = key.text()) {
    if (const auto method = method_of(value, *name)) return *method;
    if (value.to<Loop>()) return attribute(value, *name);
  }
  return missing(weft::concat("the item ", repr(key), " of a ", type_name(value)));
}

/// The places of a slice of Python.
static std::vector<size_t> places(Run& run, int64_t size, const std::optional<int64_t>& begin,
                                  const std::optional<int64_t>& end, int64_t step) {
  if (step == 0) run.refuse("the step of a slice is 0, expected another number");
  const auto bound = [&](const std::optional<int64_t>& given, int64_t otherwise) {
    if (!given) return otherwise;
    const int64_t at = *given < 0 ? std::max(*given, -size - 1) + size : *given;
    return step > 0 ? std::clamp<int64_t>(at, 0, size) : std::clamp<int64_t>(at, -1, size - 1);
  };
  const int64_t first = bound(begin, step > 0 ? 0 : size - 1);
  const int64_t last = bound(end, step > 0 ? size : -1);
  std::vector<size_t> made;
  for (int64_t at = first; step > 0 ? at < last : at > last;) {
    made.push_back(static_cast<size_t>(at));
    if (step > 0 ? step >= last - at : step <= last - at) break;
    at += step;
  }
  run.spend(made.size());
  return made;
}

Value Run::slice_of(const Value& value, const Expression& slice) {
  std::optional<int64_t> bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (!slice.parts[i]) continue;
    const Value given = evaluate(*slice.parts[i]);
    if (given.is_none()) continue;
    const auto whole = whole_of(given);
    if (!whole) refuse("a slice", given, "a whole number");
    bounds[i] = *whole;
  }
  const auto chosen = [&](size_t size) {
    return places(*this, static_cast<int64_t>(size), bounds[0], bounds[1], bounds[2].value_or(1));
  };
  if (value.text()) {
    spend_text(value.text()->size());
    const auto all = characters(*value.text());
    std::string made;
    for (const size_t at : chosen(all.size())) made += all[at];
    return Value(std::move(made), value.is_safe());
  }
  const List* list = value.to<List>();
  const bool has_places =
      list && (list->kind <= List::Kind::tuple || list->kind == List::Kind::range);
  if (!has_places) refuse("a slice", value, "a str or list");
  Values made;
  for (const size_t at : chosen(list->items.size())) made.push_back(list->items[at]);
  return make_list(std::move(made), list->kind);
}

Values Run::elements(const Value& value, std::string_view op) {
  if (value.is_undefined()) return {};
  if (List* list = value.to<List>()) {
    spend(list->items.size());
    if (list->kind != List::Kind::iterator) return list->items;
    return std::exchange(list->is_used, true) ? Values{} : list->items;
  }
  Values made;
  if (const Dict* dict = value.to<Dict>(); dict && !dict->is_namespace) {
    for (const auto& item : dict->items) made.push_back(item.first);
  } else if (const std::string* text = value.text()) {
    for (const std::string_view c : characters(*text)) made.emplace_back(c);
  } else {
    refuse(op, value, "one with elements");
  }
  spend(4 * made.size());
  return made;
}

bool Run::contains(const Value& container, const Value& value) {
  if (const std::string* text = container.text()) {
    if (!value.text()) refuse("the left side of in", value, "a str");
    spend_text(text->size());
    return text->find(*value.text()) != text->npos;
  }
  if (const Dict* dict = container.to<Dict>()) {
    spend(weight_of(value));
    if (can_change(value)) refuse("a dict", value, "a key that cannot change");
    if (!dict->is_namespace) return dict->find(value) != nullptr;
  }
  const Values items = elements(container, "the right side of in");
  return std::ranges::any_of(items, [&](const Value& item) { return are_equal(item, value); });
}

static Value whole_arithmetic(Run& run, std::string_view sign, int64_t a, int64_t b) {
  int64_t made = 0;
  bool is_over = false;
  if (sign == "+") is_over = __builtin_add_overflow(a, b, &made);
  if (sign == "-") is_over = __builtin_sub_overflow(a, b, &made);
  if (sign == "*") is_over = __builtin_mul_overflow(a, b, &made);
  if (sign == "//" || sign == "%") {
    if (b == 0) run.refuse("a division is by 0, expected another number");
    if (b == -1) return sign == "%" ? Value(0) : whole_arithmetic(run, "-", 0, a);
    const int64_t rest = a % b;
    const bool is_off = rest != 0 && (rest < 0) != (b < 0);
    made = sign == "%" ? rest + (is_off ? b : 0) : a / b - (is_off ? 1 : 0);
  }
  if (sign == "**") {
    made = 1;
    for (int64_t i = 0; i < b && !is_over && made != 0 && !(made == 1 && i > 1 && a == 1); ++i) {
      if (a == -1) return b % 2 == 0 ? 1 : -1;
      is_over = __builtin_mul_overflow(made, a, &made);
    }
  }
  if (is_over) run.refuse("a whole number is beyond 64 bits, expected a smaller one");
  return made;
}

static Value arithmetic(Run& run, std::string_view sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "**" && ((a < 0 && b != std::floor(b)) || (a == 0 && b < 0))) {
    run.refuse("a power is not a real number, expected one that is");
  }
  if (sign == "**") return std::pow(a, b);
  if (b == 0) run.refuse("a division is by 0, expected another number");
  if (sign == "/") return a / b;
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return sign == "%" ? rest : std::floor((a - rest) / b + 0.5);
}

/// A text or list, a number of times.
static Value repeated(Run& run, const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  const List* list = value.to<List>();
  const size_t size = list ? list->items.size() : value.text()->size();
  if (size > 0) run.spend(count > SIZE_MAX / 4 / size ? SIZE_MAX : count * size / (list ? 1 : 16));
  std::string text;
  Values items;
  for (size_t i = 0; size > 0 && i < count; ++i) {
    if (list) items.insert(items.end(), list->items.begin(), list->items.end());
    if (!list) text += *value.text();
  }
  return list ? make_list(std::move(items), list->kind) : Value(std::move(text), value.is_safe());
}

static Value joined(Run& run, const Value& left, const Value& right) {
  const bool is_safe = left.is_safe() || right.is_safe();
  const auto part = [&](const Value& value) {
    return is_safe && !value.is_safe() ? html_escaped(*value.text()) : *value.text();
  };
  run.spend_text(left.text()->size() + right.text()->size());
  return Value(part(left) + part(right), is_safe);
}

Value Run::binary(std::string_view sign, const Value& left, const Value& right) {
  const std::string op = weft::concat("the operator ", sign);
  if (sign == "%" && left.text()) {
    return Value(percent_format(*this, *left.text(), right), left.is_safe());
  }
  for (const Value* value : {&left, &right}) {
    if (value->is_undefined()) refuse(op, *value, "a value");
  }
  const List *a = left.to<List>(), *b = right.to<List>();
  if (sign == "+" && left.text() && right.text()) return joined(*this, left, right);
  if (sign == "+" && a && b && a->kind == b->kind && a->kind <= List::Kind::tuple) {
    spend(2 * (a->items.size() + b->items.size()));
    Values items = a->items;
    items.insert(items.end(), b->items.begin(), b->items.end());
    return make_list(std::move(items), a->kind);
  }
  if (sign == "*") {
    const auto repeats = [](const Value& value) {
      const List* list = value.to<List>();
      return value.text() || (list && list->kind <= List::Kind::tuple);
    };
    if (repeats(left) && whole_of(right)) return repeated(*this, left, *whole_of(right));
    if (repeats(right) && whole_of(left)) return repeated(*this, right, *whole_of(left));
  }
  const auto whole_left = whole_of(left), whole_right = whole_of(right);
  const bool is_whole = whole_left && whole_right && sign != "/";
  if (is_whole && (sign != "**" || *whole_right >= 0)) {
    return whole_arithmetic(*this, sign, *whole_left, *whole_right);
  }
  const auto number_left = number_of(left), number_right = number_of(right);
  if (number_left && number_right) return arithmetic(*this, sign, *number_left, *number_right);
  refuse(op, number_left || left.text() ? right : left,
         left.text() ? "a str" : "a number, or two values that it joins");
}

}  // namespace weft::jinja
