// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace weft::text {

/// Encodes one word after the other; a word does not depend on those around it. Several threads may
/// encode at once.
class WordModel {
 public:
  virtual ~WordModel() = default;
  /// Appends the ids of `word`, which is not empty.
  virtual void encode(std::string_view word, std::vector<int32_t>& ids) const = 0;
};

}  // namespace weft::text
