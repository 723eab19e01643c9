// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft::text {

/// The bytes that the characters of a byte-level token stand for (GPT-2's table), or nothing when a
/// character stands for none.
std::optional<std::string> bytes_of_characters(std::string_view token);

}  // namespace weft::text
