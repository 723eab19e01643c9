// SPDX-License-Identifier: Apache-2.0
#include "cli/numbers.h"

#include "weft/error.h"

namespace weft::cli {

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

CLI::Option* takes_number(CLI::Option* option, Least least, double most) {
  const bool is_bounded = most < std::numeric_limits<double>::max();
  const auto accepts = [least, most](const std::string& text) {
    const auto number = number_in<double>(text);
    return number && *number >= least.value && *number <= most &&
           !(least.is_excluded && *number == least.value);
  };
  const std::string bound = is_bounded ? concat(" and at most ", most) : "";
  return checked(
      option,
      concat("a finite number ", least.is_excluded ? "above " : "of at least ", least.value, bound),
      accepts);
}

}  // namespace weft::cli
