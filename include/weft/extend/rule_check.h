// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace weft {
namespace rule_grammar {

constexpr bool is_name_char(char c, bool first) {
  return (c >= 'a' && c <= 'z') || c == '_' || (!first && c >= '0' && c <= '9');
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

constexpr bool is_name(std::string_view text) {
  if (text.empty()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!is_name_char(text[i], i == 0)) return false;
  }
  return true;
}

/// Returns a dim without its marks: "v:max" -> "v", "[+d]" -> "d".
constexpr std::string_view bare(std::string_view dim) {
  if (!dim.empty() && dim.front() == '[') dim = trimmed(dim.substr(1, dim.size() - 2));
  if (!dim.empty() && (dim.front() == '+' || dim.front() == '~')) dim.remove_prefix(1);
  return dim.substr(0, dim.find(':'));
}

/// True when `holds(name)` does for a factor of the dim: for one within ( ), or the only one, which
/// may be `...`.
template <class Holds> constexpr bool any_factor(std::string_view dim, const Holds& holds) {
  if (dim.front() != '(') return holds(dim == "..." ? dim : bare(dim));
  std::string_view inner = trimmed(dim.substr(1, dim.size() - 2));
  for (; !inner.empty(); inner = trimmed(inner)) {
    if (holds(cut(inner, ' '))) return true;
  }
  return false;
}

// In a rule that is checked at compile time, the compiler shows the line of the throw: each mistake
// is thrown where it is found.

constexpr void check_dim(std::string_view dim, bool result) {
  if (dim == "...") return;
  if (dim.front() == '(') {
    if (dim.back() != ')') throw "a ( is not closed";
    if (trimmed(dim.substr(1, dim.size() - 2)).empty()) throw "() merges no factors";
    const auto is_wrong = [](std::string_view name) { return !is_name(name); };
    if (any_factor(dim, is_wrong)) throw "( ) holds names only";
    return;
  }
  if (dim.front() == '[' && dim.back() != ']') throw "a [ is not closed";
  std::string_view marked = dim.front() == '[' ? trimmed(dim.substr(1, dim.size() - 2)) : dim;
  if (marked.empty()) throw "[] names no factor";
  if (marked.front() == '+' && !result) throw "+ creates a factor: only a result can have it";
  if (marked.front() == '~' && result) throw "~ fetches slices: only an operand can have it";
  if (size_t at = marked.find(':'); at != std::string_view::npos) {
    std::string_view op = marked.substr(at + 1);
    if (result) throw "a result reduces nothing: put :max or :min at the operand's factor";
    if (op != "max" && op != "min") throw "only :max and :min follow a factor";
  }
  if (!is_name(bare(dim))) throw "a factor's name is lower case letters, digits and _";
}

/// True when the dim has the factor `name`, or when both are `...`.
constexpr bool dim_has(std::string_view dim, std::string_view name) {
  return any_factor(dim, [&](std::string_view own) { return own == name; });
}

/// True when some operand before "->" has the factor `name`.
constexpr bool operand_has(std::string_view operands, std::string_view name) {
  while (!operands.empty()) {
    std::string_view array = cut(operands, ',');
    while (!array.empty()) {
      if (dim_has(next_dim(array), name)) return true;
    }
  }
  return false;
}

constexpr void check_result_dim(std::string_view dim, std::string_view operands) {
  if (dim == "...") {
    if (!operand_has(operands, dim)) throw "no operand has ...";
    return;
  }
  if (dim.front() == '(') {
    const auto is_unknown = [&](std::string_view name) { return !operand_has(operands, name); };
    if (any_factor(dim, is_unknown)) throw "a result names an unknown factor";
    return;
  }
  bool created =
      dim.front() == '+' || (dim.front() == '[' && trimmed(dim.substr(1)).front() == '+');
  const bool known = operand_has(operands, bare(dim));
  if (created && known) throw "a created factor stands in an operand";
  if (!created && !known) throw "a result names an unknown factor";
}

/// True when the array names a factor twice, in two dims or in one.
constexpr bool names_twice(std::string_view array) {
  while (!array.empty()) {
    const std::string_view dim = next_dim(array);
    const auto is_again = [&](std::string_view name) {
      int times = 0;
      any_factor(dim, [&](std::string_view own) { return (times += own == name) > 1; });
      for (std::string_view rest = array; !rest.empty();) times += dim_has(next_dim(rest), name);
      return times > 1;
    };
    if (any_factor(dim, is_again)) return true;
  }
  return false;
}

constexpr void check_side(std::string_view side, std::string_view operands, bool result) {
  bool more = !side.empty();
  while (more) {
    more = side.find(',') != std::string_view::npos;
    std::string_view array = cut(side, ','), whole = array;
    if (array == ".") continue;
    if (array.empty()) throw "an array has no dims (write . for one without)";
    for (bool first = true; !array.empty(); first = false) {
      std::string_view dim = next_dim(array);
      if (dim == "..." && !first && !result) throw "... stands first";
      check_dim(dim, result);
      if (result) check_result_dim(dim, operands);
    }
    if (names_twice(whole)) throw "an array names a factor twice";
  }
}

}  // namespace rule_grammar

constexpr void check_rule(std::string_view text) {
  size_t arrow = text.find("->");
  if (arrow == std::string_view::npos) throw "a rule has operands, -> and results";
  std::string_view operands = rule_grammar::trimmed(text.substr(0, arrow));
  std::string_view results = rule_grammar::trimmed(text.substr(arrow + 2));
  rule_grammar::check_side(operands, operands, false);
  rule_grammar::check_side(results, operands, true);
}

}  // namespace weft
