// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "weft/error.h"

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

/// `accepts` also writes the text anew where CLI11 would read it in another way.
template <class Accepts>
CLI::Option* checked(CLI::Option* option, const std::string& expected, Accepts accepts) {
  const auto check = [option, expected, accepts](std::string& text) {
    if (accepts(text)) return std::string();
    const auto& letters = option->get_snames();
    fail(letters.empty() ? option->get_name() : "-" + letters[0], " is ",
         text.empty() ? "empty" : printable(text), ", expected ", expected);
  };
  return option->transform(CLI::Validator(check, ""));
}

/// Lets the flag take whole numbers from `least` to `most` only. Parsing anything else throws
/// std::invalid_argument "--steps is 0, expected a whole number from 1 to 2147483647".
inline CLI::Option* takes_whole(CLI::Option* option, uint64_t least, uint64_t most = kMostCount) {
  const auto accepts = [least, most](std::string& text) {
    const auto number = number_in<uint64_t>(text);
    if (!number || *number < least || *number > most) return false;
    text = std::to_string(*number);  // without zeros before it, which would make it octal
    return true;
  };
  return checked(option, concat("a whole number from ", least, " to ", most), accepts);
}

/// The same for texts of at least one byte.
inline CLI::Option* takes_text(CLI::Option* option) {
  return checked(option, "at least one byte", [](const auto& text) { return !text.empty(); });
}

/// Adds an option whose value the help calls `type`.
template <class Value>
CLI::Option* add_named(CLI::App& command, const std::string& name, Value& value,
                       const std::string& type, const std::string& about) {
  return command.add_option(name, value, about)->type_name(type);
}

/// Adds an option whose default the help shows, unless `about` states it.
template <class Value>
CLI::Option* add_shown(CLI::App& command, const std::string& name, Value& value,
                       const std::string& about) {
  CLI::Option* option = command.add_option(name, value, about);
  return about.find("(default") == about.npos ? option->capture_default_str() : option;
}

/// Adds such an option for whole numbers, with the bounds of `takes_whole`.
template <class Number, class... Bounds>
CLI::Option* add_whole(CLI::App& command, const std::string& name, Number& value,
                       const std::string& about, Bounds... bounds) {
  return takes_whole(add_shown(command, name, value, about), bounds...);
}

/// Adds such an option for finite numbers from `least` to `most`.
template <class Number>
CLI::Option* add_number(CLI::App& command, const std::string& name, Number& value,
                        const std::string& about, Least least,
                        double most = std::numeric_limits<double>::max()) {
  const bool is_bounded = most < std::numeric_limits<double>::max();
  const auto accepts = [least, most](const std::string& text) {
    const auto number = number_in<double>(text);
    return number && *number >= least.value && *number <= most &&
           !(least.is_excluded && *number == least.value);
  };
  const std::string bound = is_bounded ? concat(" and at most ", most) : "";
  return checked(
      add_shown(command, name, value, about),
      concat("a finite number ", least.is_excluded ? "above " : "of at least ", least.value, bound),
      accepts);
}

}  // namespace weft::cli
