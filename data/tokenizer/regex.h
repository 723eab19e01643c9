// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace weft::text {

/// A range of bytes of a text.
struct TextRange {
  size_t begin, end;
};

/// Finds the first match that begins at byte `from` of valid UTF-8 or later and is not empty;
/// returns whether there is one.
using Find = std::function<bool(std::string_view text, size_t from, TextRange& match)>;

/// A `Find` of a regular expression over valid UTF-8, compiled by PCRE2 with its just-in-time
/// compiler. Several threads may search at once.
class Regex {
 public:
  /// std::invalid_argument, which begins with `what`, when the pattern does not compile.
  Regex(const std::string& what, const std::string& pattern);

  /// std::runtime_error when the search exceeds PCRE2's limits.
  bool operator()(std::string_view text, size_t from, TextRange& match) const;

 private:
  std::shared_ptr<const void> code_;
};

}  // namespace weft::text
