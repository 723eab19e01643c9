// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>

namespace weft {

/// The name of the option in sentences: as a flag, "--allow-change", or as a field,
/// "allow_change".
inline std::string option_name(std::string field, bool are_flags) {
  if (!are_flags) return field;
  std::ranges::replace(field, '_', '-');
  return "--" + field;
}

/// "--resume: ", or "trainer: resume: ".
inline std::string start_of_error(const std::string& field, bool are_flags) {
  return (are_flags ? "" : "trainer: ") + option_name(field, are_flags) + ": ";
}

}  // namespace weft
