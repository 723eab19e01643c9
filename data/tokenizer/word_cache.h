// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/word_model.h"

namespace weft::text {

/// Keeps the ids of words that were encoded, in memory of a fixed limit: a full cache is emptied.
/// For one thread at a time.
class WordCache {
 public:
  WordCache();
  /// Appends the ids of `word` as the model encodes it.
  void encode(const WordModel& model, std::string_view word, std::vector<int32_t>& ids);

 private:
  struct Entry {
    uint64_t hash;
    uint32_t text, ids;
    uint16_t bytes, count;
  };
  void clear();

  std::vector<Entry> table_;
  std::string texts_;
  std::vector<int32_t> ids_;
  size_t words_ = 0;
};

}  // namespace weft::text
