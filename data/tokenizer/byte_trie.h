// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace weft::text {

/// Texts and their numbers in a tree of bytes, whose edges are in one hash table.
class ByteTrie {
 public:
  void add(std::string_view text, int32_t number);
  bool is_empty() const { return numbers_.size() == 1; }
  /// The node below `node` (the root is 0) along a byte, or 0.
  uint32_t child(uint32_t node, char byte) const {
    const uint64_t key = key_of(node, byte);
    for (size_t slot = slot_of(key);; slot = (slot + 1) & (edges_.size() - 1)) {
      if (edges_[slot].key == key) return edges_[slot].child;
      if (edges_[slot].key == 0) return 0;
    }
  }
  /// The number of the text that ends in the node, or -1.
  int32_t number(uint32_t node) const { return numbers_[node]; }
  /// The bytes of the longest text that `text` begins with; 0 for none.
  size_t longest(std::string_view text) const;

 private:
  struct Edge {
    uint64_t key;
    uint32_t child;
  };
  static uint64_t key_of(uint32_t node, char byte) {
    return (uint64_t{node} << 8 | static_cast<unsigned char>(byte)) + 1;
  }
  size_t slot_of(uint64_t key) const {
    key *= 0x9e3779b97f4a7c15;
    return (key ^ key >> 32) & (edges_.size() - 1);
  }
  void insert(uint64_t key, uint32_t child);

  std::vector<Edge> edges_ = std::vector<Edge>(64);
  std::vector<int32_t> numbers_ = {-1};
};

}  // namespace weft::text
