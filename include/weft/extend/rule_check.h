// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/placement.h"

namespace weft {
namespace rule_grammar {

/// A named factor of a rule. Text: a view at compile time; clang cannot evaluate g++'s std::string.
template <class Text> struct FactorOf {
  Text name;
  /// `[d]`: never sharded.
  bool whole = false;
  /// `+v`: no operand has it.
  bool created = false;
  /// `~b`: an operand's dim that is fetched in slices.
  bool fetched = false;
  /// Reduces ranks' partial results if no result has the factor.
  ReduceOp reduce = ReduceOp::sum;
  /// The size in a Binding; -1 while it is unknown.
  int64_t size = -1;
};

/// One dim of an array: its factors, outermost first; `...` has none.
struct RuleDim {
  std::vector<int> factors = {};
  bool ellipsis = false;
};

using RuleArray = std::vector<RuleDim>;

template <class Text> struct ParsedRuleOf {
  Text text;
  std::vector<FactorOf<Text>> factors = {};
  std::vector<RuleArray> operands = {}, results = {}, stages = {};
  /// Sizes of factors that the attributes state, by name.
  std::vector<std::pair<std::string, int64_t>> sizes = {};
  /// Factors that stages reduce over.
  std::vector<int> staged = {};
  /// Rows and the entries that they belong to; -1 without.
  std::pair<int, int> joined = {-1, -1};

  /// Returns the factor's index, or -1 if the rule lacks it.
  constexpr int find(std::string_view name) const {
    for (size_t i = 0; i < factors.size(); ++i) {
      if (factors[i].name == name) return static_cast<int>(i);
    }
    return -1;
  }
};

constexpr bool is_name(std::string_view text) {
  return !text.empty() && !(text.front() >= '0' && text.front() <= '9') &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789") == text.npos;
}

constexpr std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// Removes the text before the first `mark` (all of it when there is none), and the mark, from
/// `rest` and returns the text, trimmed.
constexpr std::string_view cut(std::string_view& rest, char mark) {
  size_t at = rest.find(mark);
  std::string_view head = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view() : rest.substr(at + 1);
  return trimmed(head);
}

/// Removes the next dim from `array` and returns it: a word, or everything in brackets.
constexpr std::string_view next_dim(std::string_view& array) {
  array = trimmed(array);
  char close = array.empty() ? ' ' : array[0] == '(' ? ')' : array[0] == '[' ? ']' : ' ';
  size_t end = array.find(close);
  if (end == std::string_view::npos) end = array.size();
  if (close != ' ' && end < array.size()) ++end;
  std::string_view dim = array.substr(0, end);
  array = trimmed(array.substr(end));
  return dim;
}

/// The place of an array in a rule. A stage may name any factors.
enum class Side : uint8_t { operand, result, stage };

// In a rule that is checked at compile time, the compiler shows the line of the throw: each mistake
// is thrown where it is found.

constexpr int factor_named(auto& rule, std::string_view name, Side side, bool created) {
  const int found = rule.find(name);
  if (side == Side::result) {
    const bool known = found >= 0 && !rule.factors[static_cast<size_t>(found)].created;
    if (created && known) throw "a created factor stands in an operand";
    if (!created && !known) throw "a result names an unknown factor";
  }
  if (found >= 0) return found;
  rule.factors.push_back({.name = decltype(rule.text)(name)});
  return static_cast<int>(rule.factors.size()) - 1;
}

/// Parses dims "(a b)" that are merged.
constexpr RuleDim parse_merged(auto& rule, std::string_view dim, Side side) {
  if (dim.back() != ')') throw "a ( is not closed";
  std::string_view names = trimmed(dim.substr(1, dim.size() - 2));
  if (names.empty()) throw "() merges no factors";
  RuleDim merged;
  while (!names.empty()) {
    const std::string_view name = cut(names, ' ');
    if (!is_name(name)) throw "( ) holds names only";
    merged.factors.push_back(factor_named(rule, name, side, false));
    names = trimmed(names);
  }
  return merged;
}

constexpr RuleDim parse_dim(auto& rule, std::string_view dim, Side side) {
  if (dim == "...") {
    const auto has = [](const RuleArray& array) { return !array.empty() && array[0].ellipsis; };
    if (side == Side::result && std::ranges::none_of(rule.operands, has))
      throw "no operand has ...";
    return {.ellipsis = true};
  }
  if (dim.front() == '(') return parse_merged(rule, dim, side);
  const bool whole = dim.front() == '[';
  if (whole) {
    if (dim.back() != ']') throw "a [ is not closed";
    dim = trimmed(dim.substr(1, dim.size() - 2));
    if (dim.empty()) throw "[] names no factor";
  }
  const bool created = dim.front() == '+', fetched = dim.front() == '~';
  if (created && side != Side::result) throw "+ creates a factor: only a result can have it";
  if (fetched && side == Side::result) throw "~ fetches slices: only an operand can have it";
  if (created || fetched) dim.remove_prefix(1);
  const std::string_view name = dim.substr(0, dim.find(':')), op = dim.substr(name.size());
  if (!op.empty()) {
    if (side == Side::result)
      throw "a result reduces nothing: put :max or :min at the operand's factor";
    if (op != ":max" && op != ":min") throw "only :max and :min follow a factor";
  }
  if (!is_name(name)) throw "a factor's name is lower case letters, digits and _";
  const int index = factor_named(rule, name, side, created);
  auto& factor = rule.factors[static_cast<size_t>(index)];
  factor.whole = factor.whole || whole;
  factor.created = factor.created || created;
  factor.fetched = factor.fetched || fetched;
  if (!op.empty()) factor.reduce = op == ":max" ? ReduceOp::max : ReduceOp::min;
  return {.factors = {index}};
}

constexpr RuleArray parse_array(auto& rule, std::string_view text, Side side = Side::stage) {
  RuleArray array;
  text = trimmed(text);
  if (text == ".") return array;
  std::vector<int> seen;
  while (!text.empty()) {
    const std::string_view dim = next_dim(text);
    if (dim == "..." && side == Side::operand && !array.empty()) throw "... stands first";
    array.push_back(parse_dim(rule, dim, side));
    seen.insert(seen.end(), array.back().factors.begin(), array.back().factors.end());
    if (array.back().ellipsis) seen.push_back(-1);
  }
  std::sort(seen.begin(), seen.end());
  if (std::ranges::adjacent_find(seen) != seen.end()) throw "an array names a factor twice";
  return array;
}

constexpr std::vector<RuleArray> parse_side(auto& rule, std::string_view text, Side side) {
  std::vector<RuleArray> arrays;
  for (bool more = !text.empty(); more;) {
    more = text.find(',') != std::string_view::npos;
    const std::string_view array = cut(text, ',');
    if (array.empty()) throw "an array has no dims (write . for one without)";
    arrays.push_back(parse_array(rule, array, side));
  }
  return arrays;
}

/// Parses a rule; throws what is wrong with it, a `const char*`.
template <class Text = std::string> constexpr ParsedRuleOf<Text> parse(std::string_view text) {
  const size_t arrow = text.find("->");
  if (arrow == std::string_view::npos) throw "a rule has operands, -> and results";
  ParsedRuleOf<Text> rule{.text = Text(text)};
  rule.operands = parse_side(rule, trimmed(text.substr(0, arrow)), Side::operand);
  rule.results = parse_side(rule, trimmed(text.substr(arrow + 2)), Side::result);
  return rule;
}

}  // namespace rule_grammar

constexpr void check_rule(std::string_view text) { rule_grammar::parse<std::string_view>(text); }

}  // namespace weft
