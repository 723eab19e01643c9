// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/word_cache.h"

#include <algorithm>
#include <cstring>

namespace weft::text {

static constexpr size_t kSlots = size_t{1} << 17;
static constexpr size_t kMostWords = kSlots / 2;
/// Longer words are rare and encoded each time.
static constexpr size_t kLongestWord = 128;

/// Mixes eight bytes at a time; words are too short for a hash of long inputs to pay off.
static uint64_t word_hash(std::string_view word) {
  uint64_t hash = word.size();
  while (!word.empty()) {
    uint64_t bytes = 0;
    const size_t size = std::min(word.size(), sizeof bytes);
    std::memcpy(&bytes, word.data(), size);
    hash = (hash ^ bytes) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
    word.remove_prefix(size);
  }
  return hash * 0xbf58476d1ce4e5b9 >> 8;
}

WordCache::WordCache() : table_(kSlots, Entry{}) {}

void WordCache::clear() {
  std::ranges::fill(table_, Entry{});
  texts_.clear();
  ids_.clear();
  words_ = 0;
}

void WordCache::encode(const WordModel& model, std::string_view word, std::vector<int32_t>& ids) {
  if (word.size() > kLongestWord) return model.encode(word, ids);
  const uint64_t hash = word_hash(word);
  size_t slot = hash & (kSlots - 1);
  for (; table_[slot].bytes != 0; slot = (slot + 1) & (kSlots - 1)) {
    const Entry& entry = table_[slot];
    if (entry.hash != hash || entry.bytes != word.size()) continue;
    if (!std::equal(word.begin(), word.end(), texts_.data() + entry.text)) continue;
    const int32_t* first = ids_.data() + entry.ids;
    ids.insert(ids.end(), first, first + entry.count);
    return;
  }
  const size_t before = ids.size();
  model.encode(word, ids);
  if (words_ == kMostWords) return clear();
  const auto count = static_cast<uint16_t>(ids.size() - before);
  table_[slot] = {hash, static_cast<uint32_t>(texts_.size()), static_cast<uint32_t>(ids_.size()),
                  static_cast<uint16_t>(word.size()), count};
  texts_ += word;
  ids_.insert(ids_.end(), ids.begin() + static_cast<ptrdiff_t>(before), ids.end());
  ++words_;
}

}  // namespace weft::text
