// SPDX-License-Identifier: Apache-2.0
#include "tp/paths.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "weft/error.h"

namespace weft::tp {

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
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
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
  std::string general;
  for (const std::string& part : parts_of(path)) {
    general += general.empty() ? "" : ".";
    general += is_number(part) ? "*" : part;
  }
  return general;
}

static std::string close_paths(const NamedModules& modules, const std::string& pattern) {
  std::set<std::pair<size_t, std::string>> by_distance;
  for (const auto& [path, module] : modules) {
    if (path.empty()) continue;
    const std::string general = general_path(path);
    by_distance.emplace(distance(general_path(pattern), general), general);
  }
  std::string list;
  size_t named = 0;
  for (const auto& [letters, path] : by_distance) {
    if (named++ == kClosePaths) break;
    list += list.empty() ? "; the closest are " : ", ";
    list += in_quotes(path);
  }
  return list;
}

NamedModules matching(const NamedModules& modules, const std::string& pattern) {
  NamedModules found;
  for (const auto& named : modules) {
    if (matches(pattern, named.first)) found.push_back(named);
  }
  if (found.empty()) {
    fail("parallelize: ", in_quotes(pattern), " matches no module", close_paths(modules, pattern));
  }
  return found;
}

}  // namespace weft::tp
