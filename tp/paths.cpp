// SPDX-License-Identifier: Apache-2.0
#include "tp/styles.h"

#include <algorithm>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/filter.hpp>
#include <range/v3/view/indices.hpp>
#include <range/v3/view/join.hpp>
#include <range/v3/view/take.hpp>
#include <range/v3/view/transform.hpp>
#include <set>
#include <string_view>

#include "weft/error.h"

namespace weft::tp {

namespace views = ranges::views;

/// Number of close paths in an error message.
static constexpr size_t kClosePaths = 3;

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t start = 0; start < path.size();) {
    const size_t end = std::min(path.find('.', start), path.size());
    parts.push_back(path.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

bool is_number(const std::string& part) {
  return !part.empty() && part.find_first_not_of("0123456789") == part.npos;
}

static bool matches_part(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] != '*') {
    return !name.empty() && name[0] == pattern[0] &&
           matches_part(pattern.substr(1), name.substr(1));
  }
  for (size_t taken = 0; taken <= name.size(); ++taken) {
    if (matches_part(pattern.substr(1), name.substr(taken))) return true;
  }
  return false;
}

bool matches(const std::string& pattern, const std::string& path) {
  const auto patterns = parts_of(pattern), names = parts_of(path);
  return std::equal(patterns.begin(), patterns.end(), names.begin(), names.end(), matches_part);
}

/// The least number of letters to insert, delete or replace (Levenshtein, 1966).
static size_t distance(const std::string& a, const std::string& b) {
  auto row = views::indices(b.size() + 1) | ranges::to<std::vector>();
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t exchanged = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({exchanged, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

/// Replaces numbers by `*`, so that the layers of a model count as one.
static std::string general_path(const std::string& path) {
  const auto general = [](const std::string& part) { return is_number(part) ? "*" : part; };
  const std::vector<std::string> parts = parts_of(path);
  return parts | views::transform(general) | views::join('.') | ranges::to<std::string>();
}

static std::string close_paths(const NamedModules& modules, const std::string& pattern) {
  std::set<std::pair<size_t, std::string>> by_distance;
  for (const auto& [path, module] : modules) {
    if (path.empty()) continue;
    const std::string general = general_path(path);
    by_distance.emplace(distance(general_path(pattern), general), general);
  }
  if (by_distance.empty()) return "";
  const auto name = [](const auto& close) { return in_quotes(close.second); };
  return concat("; the closest are ", by_distance | views::take(kClosePaths) |
                                          views::transform(name) | views::join(std::string(", ")) |
                                          ranges::to<std::string>());
}

NamedModules matching(const NamedModules& modules, const std::string& pattern) {
  const auto is_match = [&](const auto& named) { return matches(pattern, named.first); };
  auto found = modules | views::filter(is_match) | ranges::to<NamedModules>();
  if (found.empty()) {
    fail("parallelize: ", in_quotes(pattern), " matches no module, expected a path of one",
         close_paths(modules, pattern));
  }
  return found;
}

}  // namespace weft::tp
