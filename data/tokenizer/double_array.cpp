// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/double_array.h"

#include <algorithm>

namespace weft::text {

static constexpr size_t kBlock = 256;
/// Places for children are searched in so many blocks at the end of the array, which bounds the
/// time to make it.
static constexpr size_t kSearched = 4 * kBlock;

/// A base at which the children with these labels are unused.
uint32_t DoubleArray::base_for(const std::vector<unsigned char>& labels) {
  const size_t size = nodes_.size();
  const auto is_unused = [&](size_t at) { return nodes_[at].label < 0; };
  for (size_t at = std::max(kBlock, size - std::min(size, kSearched)); at < size; ++at) {
    if (!is_unused(at)) continue;
    const size_t base = at ^ labels[0];
    if (nodes_[base].is_base) continue;
    if (std::ranges::all_of(labels, [&](size_t label) { return is_unused(base ^ label); })) {
      return static_cast<uint32_t>(base);
    }
  }
  nodes_.resize(size + kBlock);
  return static_cast<uint32_t>(size);
}

DoubleArray::DoubleArray(std::vector<Entry> entries) {
  std::ranges::stable_sort(entries, {}, &Entry::first);
  /// The entries below a node, which agree in their first `depth` bytes.
  struct Range {
    size_t begin, end, depth;
    uint32_t node;
  };
  std::vector<Range> ranges = {{0, entries.size(), 0, 0}};
  std::vector<unsigned char> labels;
  while (!ranges.empty()) {
    auto [begin, end, depth, node] = ranges.back();
    ranges.pop_back();
    for (; begin < end && entries[begin].first.size() == depth; ++begin) {
      if (depth > 0) nodes_[node].number = entries[begin].second;
    }
    if (begin == end) continue;
    const auto label_of = [&, d = depth](size_t i) {
      return static_cast<unsigned char>(entries[i].first[d]);
    };
    labels.clear();
    for (size_t i = begin; i < end; ++i) {
      if (labels.empty() || labels.back() != label_of(i)) labels.push_back(label_of(i));
    }
    const uint32_t base = base_for(labels);
    nodes_[node].base = base;
    nodes_[base].is_base = true;
    for (size_t i = begin, next; i < end; i = next) {
      const unsigned char label = label_of(i);
      for (next = i + 1; next < end && label_of(next) == label;) ++next;
      nodes_[base ^ label].label = label;
      ranges.push_back({i, next, depth + 1, base ^ label});
    }
  }
}

size_t DoubleArray::longest(std::string_view text) const {
  size_t longest = 0;
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    node = child(node, text[i]);
    if (node == 0) break;
    if (number(node) >= 0) longest = i + 1;
  }
  return longest;
}

int32_t DoubleArray::find(std::string_view text) const {
  uint32_t node = 0;
  for (const char byte : text) {
    node = child(node, byte);
    if (node == 0) return -1;
  }
  return number(node);
}

}  // namespace weft::text
