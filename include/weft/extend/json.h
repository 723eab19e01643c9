// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weft/export.h"

namespace weft {

/// Checks that `text` is one JSON object in UTF-8, at most 32 levels deep, without a key twice in
/// one object and without zero bytes. std::invalid_argument "<what>: <source>: ..." names the
/// place.
WEFT_API void check_json(const std::string& what, const std::string& source, std::string_view text);

/// The text of a JSON file, checked as above. std::invalid_argument also when `path` is no regular
/// file, is empty or has more than `max_bytes`.
WEFT_API std::string read_json(const std::string& what, const std::string& path,
                               int64_t max_bytes = int64_t{64} << 20);

}  // namespace weft
