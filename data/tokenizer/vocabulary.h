// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace weft::text {

struct PieceHash {
  using is_transparent = void;
  size_t operator()(std::string_view piece) const { return std::hash<std::string_view>()(piece); }
};

/// The ids of pieces.
using Vocabulary = std::unordered_map<std::string, int32_t, PieceHash, std::equal_to<>>;

}  // namespace weft::text
