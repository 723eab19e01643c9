// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace weft::text {

struct PieceHash {
  using is_transparent = void;
  size_t operator()(std::string_view piece) const { return std::hash<std::string_view>()(piece); }
};

/// The ids of pieces.
using Vocabulary = std::unordered_map<std::string, int32_t, PieceHash, std::equal_to<>>;

/// Encodes one word after the other; a word does not depend on those around it. Several threads may
/// encode at once.
class WordModel {
 public:
  virtual ~WordModel() = default;
  /// Appends the ids of `word`, which is not empty.
  virtual void encode(std::string_view word, std::vector<int32_t>& ids) const = 0;
};

}  // namespace weft::text
