// SPDX-License-Identifier: Apache-2.0
#include "weft/error.h"

namespace weft {

void throw_invalid_argument(const std::string& what) { throw std::invalid_argument(what); }

void throw_runtime_error(const std::string& what) { throw std::runtime_error(what); }

std::string in_quotes(std::string_view name) {
  constexpr size_t longest = 120;
  std::string text = "\"";
  for (const char c : name.substr(0, longest)) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (c == '"' || c == '\\') text += '\\';
    text += control ? '?' : c;
  }
  return text + (name.size() > longest ? "...\"" : "\"");
}

}  // namespace weft
