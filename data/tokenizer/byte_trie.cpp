// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/byte_trie.h"

#include <utility>

namespace weft::text {

void ByteTrie::insert(uint64_t key, uint32_t child) {
  size_t slot = slot_of(key);
  while (edges_[slot].key != 0) slot = (slot + 1) & (edges_.size() - 1);
  edges_[slot] = {key, child};
}

void ByteTrie::add(std::string_view text, int32_t number) {
  uint32_t node = 0;
  for (const char byte : text) {
    uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<uint32_t>(numbers_.size());
      numbers_.push_back(-1);
      if (numbers_.size() * 2 > edges_.size()) {
        const auto old = std::exchange(edges_, std::vector<Edge>(edges_.size() * 4));
        for (const Edge& edge : old) {
          if (edge.key != 0) insert(edge.key, edge.child);
        }
      }
      insert(key_of(node, byte), next);
    }
    node = next;
  }
  numbers_[node] = number;
}

size_t ByteTrie::longest(std::string_view text) const {
  size_t longest = 0;
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    node = child(node, text[i]);
    if (node == 0) break;
    if (numbers_[node] >= 0) longest = i + 1;
  }
  return longest;
}

}  // namespace weft::text
