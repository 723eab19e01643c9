// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/word_model.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <queue>

#include "data/unicode/unicode.h"
#include "weft/error.h"

namespace weft::text {

static int32_t unknown_id(const std::string& what, const Vocabulary& vocabulary,
                          const std::string& token) {
  const auto found = vocabulary.find(token);
  if (found != vocabulary.end()) return found->second;
  fail(what, ": the unknown token is ", in_quotes(token), ", expected one of the vocabulary");
}

WordPiece::WordPiece(const std::string& what, const Vocabulary& vocabulary,
                     const std::string& unknown, const std::string& prefix, size_t most_characters)
    : unknown_(unknown_id(what, vocabulary, unknown)), most_characters_(most_characters) {
  std::vector<DoubleArray::Entry> starts(vocabulary.begin(), vocabulary.end()), rests;
  for (const auto& [piece, id] : starts) {
    if (piece.starts_with(prefix)) rests.emplace_back(piece.substr(prefix.size()), id);
  }
  starts_ = DoubleArray(std::move(starts));
  rests_ = DoubleArray(std::move(rests));
}

void WordPiece::encode(std::string_view word, std::vector<int32_t>& ids) const {
  const auto begins_character = [](char byte) { return (byte & 0xC0) != 0x80; };
  const size_t before = ids.size();
  const auto characters = static_cast<size_t>(std::ranges::count_if(word, begins_character));
  if (characters > most_characters_) return ids.push_back(unknown_);
  for (std::string_view rest = word; !rest.empty();) {
    const DoubleArray& pieces = rest.size() == word.size() ? starts_ : rests_;
    const size_t size = pieces.longest(rest);
    if (size == 0) {
      ids.resize(before);
      return ids.push_back(unknown_);
    }
    ids.push_back(pieces.find(rest.substr(0, size)));
    rest.remove_prefix(size);
  }
}

/// Words of more pieces are merged with a queue, which takes n log n steps instead of n².
static constexpr size_t kFew = 48;

static uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

static size_t pair_hash(uint64_t pair) {
  pair *= 0x9e3779b97f4a7c15;
  return pair ^ pair >> 32;
}

int byte_of_piece(const std::string& piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  unsigned byte = 0;
  const auto result = std::from_chars(&piece[3], &piece[5], byte, 16);
  return result.ec == std::errc() && result.ptr == &piece[5] ? static_cast<int>(byte) : -1;
}

std::array<int32_t, 256> ids_of_bytes(const Vocabulary& vocabulary) {
  std::array<int32_t, 256> ids{};
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = vocabulary.find(formatted("<0x%02X>", static_cast<unsigned>(byte)));
    ids[static_cast<size_t>(byte)] = found == vocabulary.end() ? -1 : found->second;
  }
  return ids;
}

bool merges_keep_spaces_first(const BpeSpec& spec) {
  // A character that becomes no token lets those on its sides merge.
  const bool has_all_bytes =
      spec.byte_fallback && std::ranges::count(ids_of_bytes(spec.vocabulary), -1) == 0;
  if (!spec.vocabulary.contains(kSpacePiece) || !(spec.unknown || has_all_bytes)) return false;
  return std::ranges::none_of(spec.merges, [](const auto& merge) {
    const auto& [left, right] = merge;
    return !left.ends_with(kSpacePiece) && right.starts_with(kSpacePiece);
  });
}

Bpe::Bpe(const std::string& what, BpeSpec spec)
    : spec_(std::move(spec)), merges_(std::bit_ceil(spec_.merges.size() * 2 + 1)) {
  for (size_t at = 0; at < spec_.merges.size(); ++at) {
    const auto& [left, right] = spec_.merges[at];
    const auto rank = spec_.ranks.empty() ? static_cast<int32_t>(at) : spec_.ranks[at];
    const auto id = [&](const std::string& piece) {
      const auto found = spec_.vocabulary.find(piece);
      if (found != spec_.vocabulary.end()) return found->second;
      fail(what, ": merge ", at, " has the piece ", in_quotes(piece),
           ", expected one of the vocabulary");
    };
    const std::string rest = right.substr(std::min(spec_.prefix.size(), right.size()));
    const Merge merge{pair_key(id(left), id(right)), rank, id(left + rest)};
    merges_[slot_of(merge.pair)] = merge;
  }
  for (const auto& [piece, id] : spec_.vocabulary) {
    if (piece.empty()) continue;
    if (spec_.by_bytes) {
      if (piece.size() == 1) bytes_[static_cast<unsigned char>(piece[0])] = id;
    } else {
      const CodePoint c = code_point_at(piece, 0);
      if (c.bytes == piece.size()) characters_.emplace(c.value, id);
    }
  }
  if (spec_.byte_fallback && !spec_.by_bytes) bytes_ = ids_of_bytes(spec_.vocabulary);
  if (spec_.unknown) unknown_ = unknown_id(what, spec_.vocabulary, *spec_.unknown);
  // = {} would keep the memory.
  spec_.merges = decltype(spec_.merges)(), spec_.ranks = decltype(spec_.ranks)();
  if (!spec_.ignore_merges && !has_affixes()) spec_.vocabulary = decltype(spec_.vocabulary)();
}

size_t Bpe::slot_of(uint64_t pair) const {
  size_t slot = pair_hash(pair) & (merges_.size() - 1);
  while (merges_[slot].pair != pair && merges_[slot].pair != ~uint64_t{0}) {
    slot = (slot + 1) & (merges_.size() - 1);
  }
  return slot;
}

const Bpe::Merge* Bpe::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  const Merge& merge = merges_[slot_of(pair)];
  return merge.pair == pair ? &merge : nullptr;
}

int32_t Bpe::id_of(std::string_view piece) const {
  if (has_affixes()) {
    const auto found = spec_.vocabulary.find(piece);
    return found == spec_.vocabulary.end() ? -1 : found->second;
  }
  const auto found = characters_.find(code_point_at(piece, 0).value);
  return found == characters_.end() ? -1 : found->second;
}

void Bpe::start(std::string_view word, std::vector<int32_t>& ids) const {
  // The package tokenizers writes an unknown token when the next token that is no byte is known.
  bool is_pending = false;
  const auto id_of_byte = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
  const auto add = [&](int32_t id) {
    if (is_pending && id < 0 && spec_.fuse_unknown) return;
    if (is_pending) ids.push_back(unknown_);
    is_pending = id < 0 && unknown_ >= 0;
    if (id >= 0) ids.push_back(id);
  };
  if (spec_.by_bytes) {
    // A character of tokenizer.json stands for one byte.
    for (const char byte : word) add(id_of_byte(byte));
  }
  for (size_t at = 0, end; at < word.size() && !spec_.by_bytes; at = end) {
    end = at + code_point_at(word, at).bytes;
    std::string_view piece = word.substr(at, end - at);
    std::string affixed;
    if (has_affixes()) {
      piece = affixed =
          concat(at == 0 ? "" : spec_.prefix, piece, end == word.size() ? spec_.suffix : "");
    }
    const int32_t id = id_of(piece);
    const auto has_id = [&](char byte) { return id_of_byte(byte) >= 0; };
    if (id < 0 && spec_.byte_fallback && std::ranges::all_of(piece, has_id)) {
      for (const char byte : piece) ids.push_back(id_of_byte(byte));
    } else {
      add(id);
    }
  }
  if (is_pending) ids.push_back(unknown_);
}

void Bpe::merge_few(std::vector<int32_t>& ids, size_t from) const {
  std::array<const Merge*, kFew> pairs;
  int32_t* id = ids.data() + from;
  size_t count = ids.size() - from;
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = find(id[i], id[i + 1]);
  while (count > 1) {
    size_t best = count;
    for (size_t i = 0; i + 1 < count; ++i) {
      if (pairs[i] && (best == count || pairs[i]->rank < pairs[best]->rank)) best = i;
    }
    if (best == count) break;
    id[best] = pairs[best]->result;
    std::copy(id + best + 2, id + count, id + best + 1);
    std::copy(pairs.begin() + best + 1, pairs.begin() + count - 1, pairs.begin() + best);
    --count;
    if (best > 0) pairs[best - 1] = find(id[best - 1], id[best]);
    if (best + 1 < count) pairs[best] = find(id[best], id[best + 1]);
  }
  ids.resize(from + count);
}

void Bpe::merge_many(std::vector<int32_t>& ids, size_t from) const {
  /// A piece of a long word, in a list; a merged one has the id -1.
  struct Part {
    int32_t id;
    size_t previous, next;
  };
  struct Candidate {
    int32_t rank, result;
    size_t at;
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  const size_t count = ids.size() - from;
  std::vector<Part> parts(count);
  std::priority_queue<Candidate> queue;
  const auto offer = [&](size_t at) {
    if (at >= count || parts[at].next >= count) return;
    const Merge* merge = find(parts[at].id, parts[parts[at].next].id);
    if (merge) queue.push({merge->rank, merge->result, at});
  };
  for (size_t i = 0; i < count; ++i) parts[i] = {ids[from + i], i - 1, i + 1};
  for (size_t i = 0; i < count; ++i) offer(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Part& left = parts[best.at];
    if (left.id < 0 || left.next >= count) continue;
    Part& right = parts[left.next];
    const Merge* merge = find(left.id, right.id);
    if (!merge || merge->result != best.result) continue;  // one of them has been merged meanwhile
    left.id = best.result;
    right.id = -1;
    left.next = right.next;
    if (left.next < count) parts[left.next].previous = best.at;
    offer(left.previous);
    offer(best.at);
  }
  ids.resize(from);
  for (size_t i = 0; i < count; i = parts[i].next) ids.push_back(parts[i].id);
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (spec_.ignore_merges) {
    const auto found = spec_.vocabulary.find(word);
    if (found != spec_.vocabulary.end()) return ids.push_back(found->second);
  }
  const size_t from = ids.size();
  start(word, ids);
  if (ids.size() - from <= kFew) {
    merge_few(ids, from);
  } else {
    merge_many(ids, from);
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
