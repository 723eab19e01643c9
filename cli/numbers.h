// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace weft::cli {

/// The most of what a flag counts.
inline constexpr int64_t kMostCount = std::numeric_limits<int32_t>::max();
/// Threads of one rank.
inline constexpr int64_t kMostThreads = 1024;

/// The number that all of the text is.
template <class T> std::optional<T> number_in(std::string_view text) {
  T number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return {};
  return number;
}

/// The least number that a flag takes, or one that it must be above.
struct Least {
  Least(double number, bool excludes = false) : value(number), is_excluded(excludes) {}
  double value;
  bool is_excluded;
};
inline Least above(double bound) { return {bound, true}; }

/// Lets the flag take whole numbers from `least` to `most` only. Parsing anything else throws
/// std::invalid_argument "--steps is 0, expected a whole number from 1 to 2147483647".
CLI::Option* takes_whole(CLI::Option* option, uint64_t least, uint64_t most = kMostCount);
/// The same for finite numbers.
CLI::Option* takes_number(CLI::Option* option, Least least,
                          double most = std::numeric_limits<double>::max());

/// Adds an option whose value the help calls `type`.
template <class Value>
CLI::Option* add_named(CLI::App& command, const std::string& name, Value& value,
                       const std::string& type, const std::string& about) {
  return command.add_option(name, value, about)->type_name(type);
}

/// Adds an option whose default the help shows.
template <class Value>
CLI::Option* add_shown(CLI::App& command, const std::string& name, Value& value,
                       const std::string& about) {
  return command.add_option(name, value, about)->capture_default_str();
}

/// Add such options for numbers, with the bounds of the functions above.
template <class Number, class... Bounds>
CLI::Option* add_whole(CLI::App& command, const std::string& name, Number& value,
                       const std::string& about, Bounds... bounds) {
  return takes_whole(add_shown(command, name, value, about), bounds...);
}
template <class Number, class... Bounds>
CLI::Option* add_number(CLI::App& command, const std::string& name, Number& value,
                        const std::string& about, Bounds... bounds) {
  return takes_number(add_shown(command, name, value, about), bounds...);
}

}  // namespace weft::cli
