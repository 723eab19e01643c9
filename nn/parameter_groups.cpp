// SPDX-License-Identifier: Apache-2.0
#include "weft/parameter_groups.h"

#include <algorithm>
#include <regex>

#include "nn/grouped_optimizer.h"
#include "weft/error.h"

namespace weft {

static std::regex expression_of(const char* what, const std::string& pattern) {
  try {
    return std::regex(pattern);
  } catch (const std::regex_error&) {
    fail(what, ": pattern is ", in_quotes(pattern), ", expected a regular expression");
  }
}

static bool finds(const std::regex& expression, const NamedParameter& named) {
  return std::ranges::any_of(
      named.names, [&](const std::string& name) { return std::regex_search(name, expression); });
}

bool NoDecay::operator()(const NamedParameter& named) const {
  if (vectors && named.parameter->shape().ndim() < 2) return false;
  return pattern.empty() || std::ranges::none_of(named.names, finds);
}

DecayPredicate no_decay(const std::string& pattern, bool vectors) {
  const auto finds_in = [expression = expression_of("no_decay", pattern)](const std::string& name) {
    return std::regex_search(name, expression);
  };
  return NoDecay{pattern, finds_in, vectors};
}

void check_no_decay(const NoDecay& predicate, const std::vector<NamedParameter>& parameters) {
  if (predicate.pattern.empty()) return;
  for (const NamedParameter& named : parameters) {
    if (std::ranges::any_of(named.names, predicate.finds)) return;
  }
  fail("no_decay: pattern ", in_quotes(predicate.pattern), " finds no parameter, expected one of ",
       parameters.size(), parameters.empty() ? "" : ", such as " + parameters[0].name());
}

std::vector<std::vector<NamedParameter>> split_by_patterns(
    const std::vector<NamedParameter>& parameters, const std::vector<std::string>& patterns) {
  std::vector<std::regex> expressions;
  for (const std::string& pattern : patterns) {
    expressions.push_back(expression_of("parameter groups", pattern));
  }
  std::vector<std::vector<NamedParameter>> parts(patterns.size() + 1);
  for (const NamedParameter& named : parameters) {
    const auto own = std::ranges::find_if(
        expressions, [&](const std::regex& expression) { return finds(expression, named); });
    parts[static_cast<size_t>(own - expressions.begin())].push_back(named);
  }
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (!parts[i].empty()) continue;
    fail("parameter groups: pattern ", in_quotes(patterns[i]),
         " finds no parameter that no other pattern has, expected at least one of ",
         parameters.size());
  }
  return parts;
}

}  // namespace weft
