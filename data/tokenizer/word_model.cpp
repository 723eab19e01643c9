// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/word_model.h"

#include <algorithm>
#include <cstring>

#include "weft/error.h"

namespace weft::text {

int32_t unknown_id(const std::string& what, const Vocabulary& vocabulary,
                   const std::string& token) {
  const auto found = vocabulary.find(token);
  if (found != vocabulary.end()) return found->second;
  fail(what, ": the unknown token is ", in_quotes(token), ", expected one of the vocabulary");
}

WordPiece::WordPiece(const std::string& what, const Vocabulary& vocabulary,
                     const std::string& unknown, const std::string& prefix, size_t most_characters)
    : starts_(vocabulary), most_characters_(most_characters) {
  for (const auto& [piece, id] : vocabulary) {
    longest_ = std::max(longest_, piece.size());
    if (piece.starts_with(prefix)) rests_.emplace(piece.substr(prefix.size()), id);
  }
  unknown_ = unknown_id(what, vocabulary, unknown);
}

void WordPiece::encode(std::string_view word, std::vector<int32_t>& ids) const {
  const auto begins_character = [](char byte) { return (byte & 0xC0) != 0x80; };
  const size_t before = ids.size();
  const auto characters = static_cast<size_t>(std::ranges::count_if(word, begins_character));
  if (characters > most_characters_) return ids.push_back(unknown_);
  for (std::string_view rest = word; !rest.empty();) {
    const Vocabulary& pieces = rest.size() == word.size() ? starts_ : rests_;
    size_t size = std::min(rest.size(), longest_);
    auto found = pieces.end();
    for (; size > 0; --size) {
      if (size < rest.size() && !begins_character(rest[size])) continue;
      found = pieces.find(rest.substr(0, size));
      if (found != pieces.end()) break;
    }
    if (found == pieces.end()) {
      ids.resize(before);
      return ids.push_back(unknown_);
    }
    ids.push_back(found->second);
    rest.remove_prefix(size);
  }
}

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
  if (words_ == kMostWords) return void(*this = WordCache());
  const auto count = static_cast<uint16_t>(ids.size() - before);
  table_[slot] = {hash, static_cast<uint32_t>(texts_.size()), static_cast<uint32_t>(ids_.size()),
                  static_cast<uint16_t>(word.size()), count};
  texts_ += word;
  ids_.insert(ids_.end(), ids.begin() + static_cast<ptrdiff_t>(before), ids.end());
  ++words_;
}

}  // namespace weft::text
