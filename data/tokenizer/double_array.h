// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::text {

/// Texts and their numbers in a tree of bytes, whose nodes are in one array: the child of a node
/// along a byte is at `base ^ byte` (Aoe 1989; the form with exclusive or is that of darts-clone).
class DoubleArray {
 public:
  using Entry = std::pair<std::string_view, int32_t>;

  DoubleArray() : DoubleArray(std::vector<Entry>{}) {}
  /// The last of equal texts counts. An empty text is in no tree.
  explicit DoubleArray(std::vector<Entry> entries);

  /// The node below `node` (the root is 0) along a byte, or 0.
  uint32_t child(uint32_t node, char byte) const {
    const auto label = static_cast<unsigned char>(byte);
    const uint32_t at = nodes_[node].base ^ label;
    return nodes_[at].label == label ? at : 0;
  }
  /// The number of the text that ends in the node, or -1.
  int32_t number(uint32_t node) const { return nodes_[node].number; }
  /// The bytes of the longest text that `text` begins with; 0 for none.
  size_t longest(std::string_view text) const;
  /// The number of `text`, or -1.
  int32_t find(std::string_view text) const;

 private:
  /// An unused node has the label -1. Where a node has no children, its base is 0, whose block of
  /// 256 nodes has the root alone.
  struct Node {
    uint32_t base = 0;
    int32_t number = -1;
    int16_t label = -1;
    /// True when it is the base of a node: no other may have it, or it would find children that are
    /// not its own.
    bool is_base = false;
  };
  uint32_t base_for(const std::vector<unsigned char>& labels);

  std::vector<Node> nodes_ = std::vector<Node>(256);
};

}  // namespace weft::text
