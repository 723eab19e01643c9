// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "data/template/run.h"

namespace weft::jinja {

/// The argument after the value.
static const Value& tested_with(const Call& call) {
  if (call.plain.size() == 2 && call.named.empty()) return call.plain[1];
  call.run.refuse(concat("the test ", call.name, " has ", call.plain.size() + call.named.size() - 1,
                         " arguments, expected 1"));
}

static bool has_order(const Call& call, bool is_greater, bool or_equal) {
  const Value &value = call.plain[0], &other = tested_with(call);
  return (is_greater ? call.run.is_less(other, value) : call.run.is_less(value, other)) ||
         (or_equal && call.run.are_equal(value, other));
}

/// True when a text has letters, and all of them are as `wanted` makes them.
static bool is_in_case(const Call& call, Case wanted) {
  const std::string text = call.run.printed(call.plain[0]);
  const Case other = wanted == Case::lower ? Case::upper : Case::lower;
  return in_case(call.run, text, wanted) == text && in_case(call.run, text, other) != text;
}

static bool has_rest(const Call& call, const Value& divisor, int rest) {
  return call.run.are_equal(call.run.binary("%", call.plain[0], divisor), rest);
}

static bool is_sequence(const Value& value) {
  const List* list = value.to<List>();
  const Dict* dict = value.to<Dict>();
  return list ? list->kind <= List::Kind::tuple || list->kind == List::Kind::range
              : value.is_undefined() || value.text() || (dict && !dict->is_namespace);
}

/// Returns whether Python would have one object for both, as for equal small integers and texts.
static bool is_same(const Call& call) {
  const Value &value = call.plain[0], &other = tested_with(call);
  return value.any().index() == other.any().index() && call.run.are_equal(value, other);
}

using Test = bool (*)(const Call& call);

static const std::map<std::string, Test>& all_tests() {
  static const Test equals = [](const Call& c) {
    return c.run.are_equal(c.plain[0], tested_with(c));
  };
  static const Test differs = [](const Call& c) {
    return !c.run.are_equal(c.plain[0], tested_with(c));
  };
  static const Test greater = [](const Call& c) { return has_order(c, true, false); };
  static const Test at_least = [](const Call& c) { return has_order(c, true, true); };
  static const Test smaller = [](const Call& c) { return has_order(c, false, false); };
  static const Test at_most = [](const Call& c) { return has_order(c, false, true); };
  static const std::map<std::string, Test> tests = {
      {"==", equals},
      {"eq", equals},
      {"equalto", equals},
      {"!=", differs},
      {"ne", differs},
      {">", greater},
      {"gt", greater},
      {"greaterthan", greater},
      {"ge", at_least},
      {">=", at_least},
      {"<", smaller},
      {"lt", smaller},
      {"lessthan", smaller},
      {"<=", at_most},
      {"le", at_most},
      {"defined", [](const Call& c) { return !c.plain[0].is_undefined(); }},
      {"undefined", [](const Call& c) { return c.plain[0].is_undefined(); }},
      {"none", [](const Call& c) { return c.plain[0].is_none(); }},
      {"boolean", [](const Call& c) { return c.plain[0].as<bool>() != nullptr; }},
      {"true", [](const Call& c) { return c.plain[0].as<bool>() && *c.plain[0].as<bool>(); }},
      {"false", [](const Call& c) { return c.plain[0].as<bool>() && !*c.plain[0].as<bool>(); }},
      {"integer", [](const Call& c) { return c.plain[0].as<int64_t>() != nullptr; }},
      {"float", [](const Call& c) { return c.plain[0].as<double>() != nullptr; }},
      {"number", [](const Call& c) { return number_of(c.plain[0]).has_value(); }},
      {"string", [](const Call& c) { return c.plain[0].text() != nullptr; }},
      {"escaped", [](const Call& c) { return c.plain[0].is_safe(); }},
      {"mapping",
       [](const Call& c) {
         const Dict* dict = c.plain[0].to<Dict>();
         return dict && !dict->is_namespace;
       }},
      {"sequence", [](const Call& c) { return is_sequence(c.plain[0]); }},
      {"iterable",
       [](const Call& c) {
         return c.plain[0].to<List>() || c.plain[0].to<Loop>() || is_sequence(c.plain[0]);
       }},
      {"callable",
       [](const Call& c) {
         return c.plain[0].to<Function>() || c.plain[0].to<Loop>() || c.plain[0].is_undefined();
       }},
      {"lower", [](const Call& c) { return is_in_case(c, Case::lower); }},
      {"upper", [](const Call& c) { return is_in_case(c, Case::upper); }},
      {"odd", [](const Call& c) { return has_rest(c, 2, 1); }},
      {"even", [](const Call& c) { return has_rest(c, 2, 0); }},
      {"divisibleby", [](const Call& c) { return has_rest(c, tested_with(c), 0); }},
      {"sameas", is_same},
      {"in", [](const Call& c) { return c.run.contains(tested_with(c), c.plain[0]); }},
      {"filter", [](const Call& c) { return is_filter(c.run.printed(c.plain[0])); }},
      {"test", [](const Call& c) { return is_test(c.run.printed(c.plain[0])); }}};
  return tests;
}

bool is_test(const std::string& name) { return all_tests().contains(name); }
bool is_filter(const std::string& name) { return text_filter(name) || list_filter(name); }

bool Run::test(const std::string& name, Call& call) {
  const auto found = all_tests().find(name);
  if (found != all_tests().end()) return found->second(call);
  refuse(weft::concat("the test is ", in_quotes(name), ", expected one that weft has"));
}

Value Run::filter(const std::string& name, Call& call) {
  Filter made = text_filter(name);
  if (!made) made = list_filter(name);
  if (made) return made(call);
  refuse(weft::concat("the filter is ", in_quotes(name), ", expected one that weft has"));
}

}  // namespace weft::jinja
