// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/blocks.h"

#include <algorithm>

// Compiled into this file, so that the hash uses the vectors of the processor we compile for.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace weft {

struct BlockHashes::Stream {
  alignas(64) XXH3_state_t state;
};

BlockHashes::BlockHashes() : stream_(std::make_shared<Stream>()) {
  XXH3_64bits_reset(&stream_->state);
}

void BlockHashes::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto room = static_cast<size_t>(kBlockBytes - in_block_);
    const auto piece = bytes.first(std::min(room, bytes.size()));
    XXH3_64bits_update(&stream_->state, piece.data(), piece.size());
    in_block_ += static_cast<int64_t>(piece.size());
    bytes = bytes.subspan(piece.size());
    if (in_block_ < kBlockBytes) continue;
    hashes_.push_back(XXH3_64bits_digest(&stream_->state));
    XXH3_64bits_reset(&stream_->state);
    in_block_ = 0;
  }
}

const std::vector<uint64_t>& BlockHashes::finish() {
  if (in_block_ > 0) hashes_.push_back(XXH3_64bits_digest(&stream_->state));
  in_block_ = 0;
  return hashes_;
}

std::string hex_of(std::span<const uint64_t> hashes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(hashes.size() * 16);
  for (const uint64_t hash : hashes) {
    for (int shift = 60; shift >= 0; shift -= 4) text += digits[hash >> shift & 15];
  }
  return text;
}

bool parse_hex(const std::string& text, std::vector<uint64_t>& hashes) {
  if (text.size() % 16 != 0) return false;
  hashes.assign(text.size() / 16, 0);
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'a' && c <= 'f')) return false;
    hashes[i / 16] = hashes[i / 16] << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return true;
}

}  // namespace weft
