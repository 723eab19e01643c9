// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/binding.h"

#include "weft/error.h"

namespace weft {

using rule_grammar::bare;
using rule_grammar::cut;
using rule_grammar::next_dim;
using rule_grammar::trimmed;

int ParsedRule::find(std::string_view name) const {
  for (size_t i = 0; i < factors.size(); ++i) {
    if (factors[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

static int factor_named(ParsedRule& rule, std::string_view name) {
  int found = rule.find(name);
  if (found >= 0) return found;
  rule.factors.push_back({.name = std::string(name)});
  return static_cast<int>(rule.factors.size()) - 1;
}

static void apply_marks(Factor& factor, std::string_view dim) {
  if (dim.front() == '[') {
    factor.whole = true;
    dim = trimmed(dim.substr(1));
  }
  if (dim.front() == '+') factor.created = true;
  if (dim.front() == '~') factor.fetched = true;
  if (dim.find(":max") != std::string_view::npos) factor.reduce = ReduceOp::max;
  if (dim.find(":min") != std::string_view::npos) factor.reduce = ReduceOp::min;
}

static RuleDim parse_dim(ParsedRule& rule, std::string_view dim) {
  RuleDim parsed;
  if (dim == "...") {
    parsed.ellipsis = true;
  } else if (dim.front() == '(') {
    std::string_view inner = trimmed(dim.substr(1, dim.size() - 2));
    while (!inner.empty()) {
      parsed.factors.push_back(factor_named(rule, cut(inner, ' ')));
      inner = trimmed(inner);
    }
  } else {
    parsed.factors.push_back(factor_named(rule, bare(dim)));
    apply_marks(rule.factors[static_cast<size_t>(parsed.factors[0])], dim);
  }
  return parsed;
}

RuleArray parse_array(ParsedRule& rule, std::string_view text) {
  RuleArray array;
  text = trimmed(text);
  if (text == ".") return array;
  while (!text.empty()) array.push_back(parse_dim(rule, next_dim(text)));
  return array;
}

static std::vector<RuleArray> parse_side(ParsedRule& rule, std::string_view side) {
  std::vector<RuleArray> arrays;
  while (!side.empty()) arrays.push_back(parse_array(rule, cut(side, ',')));
  return arrays;
}

ParsedRule parse_rule(const std::string& op, std::string_view text) {
  try {
    check_rule(text);
  } catch (const char* mistake) {
    fail(op, ": the rule is \"", text, "\", expected operands -> results: ", mistake);
  }
  ParsedRule rule;
  rule.text = text;
  size_t arrow = text.find("->");
  rule.operands = parse_side(rule, trimmed(text.substr(0, arrow)));
  rule.results = parse_side(rule, trimmed(text.substr(arrow + 2)));
  return rule;
}

}  // namespace weft
