// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <charconv>
#include <queue>

#include "data/tokenizer/unicode.h"
#include "data/tokenizer/word_model.h"
#include "weft/error.h"

namespace weft::text {

/// Words of more pieces are merged with a queue, which takes n log n steps instead of n².
static constexpr size_t kFew = 48;

static uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

static size_t pair_hash(uint64_t pair) {
  pair *= 0x9e3779b97f4a7c15;
  return pair ^ pair >> 32;
}

std::string byte_piece(int byte) {
  static constexpr char digits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', digits[byte / 16], digits[byte % 16], '>'};
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
    const auto found = vocabulary.find(byte_piece(byte));
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

void Bpe::add_merge(const std::string& what, const BpeSpec& spec, size_t at) {
  const auto& [left, right] = spec.merges[at];
  const auto rank = spec.ranks.empty() ? static_cast<int32_t>(at) : spec.ranks[at];
  const auto id = [&](const std::string& piece) {
    const auto found = spec.vocabulary.find(piece);
    if (found != spec.vocabulary.end()) return found->second;
    fail(what, ": merge ", at, " has the piece ", in_quotes(piece),
         ", expected one of the vocabulary");
  };
  const Merge merge{pair_key(id(left), id(right)), rank, id(left + right)};
  size_t slot = pair_hash(merge.pair) & (merges_.size() - 1);
  while (merges_[slot].pair != ~uint64_t{0} && merges_[slot].pair != merge.pair) {
    slot = (slot + 1) & (merges_.size() - 1);
  }
  merges_[slot] = merge;
}

/// Ids of single bytes and characters, and of the bytes that stand for missing characters.
void Bpe::add_bytes(const std::string& what, const BpeSpec& spec) {
  bytes_.fill(-1);
  for (const auto& [piece, id] : spec.vocabulary) {
    if (piece.empty()) continue;
    if (by_bytes_) {
      if (piece.size() == 1) bytes_[static_cast<unsigned char>(piece[0])] = id;
    } else {
      const CodePoint c = code_point_at(piece, 0);
      if (c.bytes == piece.size()) characters_.emplace(c.value, id);
    }
  }
  if (byte_fallback_ && !by_bytes_) bytes_ = ids_of_bytes(spec.vocabulary);
  if (spec.unknown) unknown_ = unknown_id(what, spec.vocabulary, *spec.unknown);
}

Bpe::Bpe(const std::string& what, const BpeSpec& spec)
    : merges_(std::bit_ceil(spec.merges.size() * 2 + 1)),
      by_bytes_(spec.by_bytes),
      fuse_unknown_(spec.fuse_unknown),
      byte_fallback_(spec.byte_fallback),
      ignore_merges_(spec.ignore_merges) {
  for (size_t at = 0; at < spec.merges.size(); ++at) add_merge(what, spec, at);
  add_bytes(what, spec);
  if (ignore_merges_) whole_words_ = spec.vocabulary;
}

const Bpe::Merge* Bpe::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  size_t slot = pair_hash(pair) & (merges_.size() - 1);
  while (true) {
    const Merge& merge = merges_[slot];
    if (merge.pair == pair) return &merge;
    if (merge.pair == ~uint64_t{0}) return nullptr;
    slot = (slot + 1) & (merges_.size() - 1);
  }
}

void Bpe::start(std::string_view word, std::vector<int32_t>& ids) const {
  bool after_unknown = false;
  const auto id_of_byte = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
  const auto add = [&](int32_t id) {
    if (id >= 0) ids.push_back(id);
    if (id < 0 && unknown_ >= 0 && !(after_unknown && fuse_unknown_)) ids.push_back(unknown_);
    after_unknown = id < 0;
  };
  if (by_bytes_) {
    // A character of tokenizer.json stands for one byte.
    for (const char byte : word) add(id_of_byte(byte));
    return;
  }
  for (size_t at = 0; at < word.size();) {
    const CodePoint c = code_point_at(word, at);
    const std::string_view bytes = word.substr(at, c.bytes);
    at += c.bytes;
    const auto found = characters_.find(c.value);
    if (found != characters_.end()) {
      add(found->second);
    } else if (byte_fallback_ &&
               std::ranges::all_of(bytes, [&](char byte) { return id_of_byte(byte) >= 0; })) {
      for (const char byte : bytes) add(id_of_byte(byte));
    } else {
      add(-1);
    }
  }
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

/// A piece of a long word, in a list; a merged one has the id -1.
struct Bpe::Part {
  int32_t id;
  size_t previous, next;
};

void Bpe::merge_many(std::vector<int32_t>& ids, size_t from) const {
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
  if (ignore_merges_) {
    const auto found = whole_words_.find(word);
    if (found != whole_words_.end()) return ids.push_back(found->second);
  }
  const size_t from = ids.size();
  start(word, ids);
  if (ids.size() - from <= kFew) {
    merge_few(ids, from);
  } else {
    merge_many(ids, from);
  }
}

}  // namespace weft::text
