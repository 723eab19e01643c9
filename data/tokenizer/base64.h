// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft::text {

/// The bytes that the text encodes by RFC 4648, section 4; nothing when it is not such a text.
std::optional<std::string> bytes_of_base64(std::string_view text);

}  // namespace weft::text
