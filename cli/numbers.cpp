// SPDX-License-Identifier: Apache-2.0
#include "cli/numbers.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <optional>

#include "weft/error.h"

namespace weft::cli {

/// The number that all of the text is.
template <class T> static std::optional<T> number_in(const std::string& text) {
  T number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return {};
  return number;
}

static std::string flag_of(const CLI::Option& option) {
  return option.get_snames().empty() ? option.get_name() : "-" + option.get_snames()[0];
}

/// `accepts` also writes the text anew where CLI11 would read it in another way.
template <class Accepts>
static CLI::Option* checked(CLI::Option* option, const std::string& expected, Accepts accepts) {
  const auto check = [option, expected, accepts](std::string& text) {
    if (!accepts(text)) {
      fail(flag_of(*option), " is ", text.empty() ? "empty" : printable(text), ", expected ",
           expected);
    }
    return std::string();
  };
  return option->transform(CLI::Validator(check, ""));
}

CLI::Option* takes_whole(CLI::Option* option, uint64_t least, uint64_t most) {
  const auto accepts = [least, most](std::string& text) {
    const auto number = number_in<uint64_t>(text);
    if (!number || *number < least || *number > most) return false;
    text = std::to_string(*number);  // without zeros before it, which would make it octal
    return true;
  };
  return checked(option, concat("a whole number from ", least, " to ", most), accepts);
}

static CLI::Option* takes(CLI::Option* option, double least, double most, bool is_above) {
  const bool is_bounded = most < std::numeric_limits<double>::max();
  const auto accepts = [least, most, is_above](const std::string& text) {
    const auto number = number_in<double>(text);
    return number && (is_above ? *number > least : *number >= least) && *number <= most;
  };
  const std::string bound = is_bounded ? concat(" and at most ", most) : "";
  return checked(option,
                 concat("a finite number ", is_above ? "above " : "of at least ", least, bound),
                 accepts);
}

CLI::Option* takes_number(CLI::Option* option, double least, double most) {
  return takes(option, least, most, false);
}

CLI::Option* takes_number_above(CLI::Option* option, double bound, double most) {
  return takes(option, bound, most, true);
}

}  // namespace weft::cli
