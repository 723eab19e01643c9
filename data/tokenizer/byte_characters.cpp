// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/byte_characters.h"

#include <array>

#include "data/tokenizer/unicode.h"

namespace weft::text {

/// Printable bytes of Latin-1 stand for themselves; the others have the code points from 256 on.
static constexpr auto kBytesOfCharacters = [] {
  std::array<int, 324> table{};
  int others = 256;
  table.fill(-1);
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    table[static_cast<size_t>(printable ? byte : others++)] = byte;
  }
  return table;
}();

std::optional<std::string> bytes_of_characters(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const CodePoint c = code_point_at(token, at);
    if (c.value >= kBytesOfCharacters.size() || kBytesOfCharacters[c.value] < 0) return {};
    bytes.push_back(static_cast<char>(kBytesOfCharacters[c.value]));
    at += c.bytes;
  }
  return bytes;
}

}  // namespace weft::text
