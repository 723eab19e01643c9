// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/safetensors.h"

namespace weft {

/// The parsed JSON header of a safetensors file.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// Readers of safetensors refuse longer ones.
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;

/// The name that safetensors gives the dtype: "F32".
std::string_view safetensors_name_of(DType dtype);
/// Returns std::nullopt for a name that safetensors gives no dtype of weft.
std::optional<DType> dtype_in_safetensors(std::string_view name);

/// Parses and checks the header `text` of the file `path`, whose tensors lie in its bytes from
/// `data_start` to `file_size`. std::invalid_argument as SafetensorsFile says.
SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view text,
                                           int64_t data_start, int64_t file_size);

}  // namespace weft
