// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "weft/extend/pattern.h"

namespace weft {

/// Numbers and texts in a message to other ranks.
class MoveMessage {
 public:
  MoveMessage() = default;
  explicit MoveMessage(std::string text) : text_(std::move(text)) {}
  const std::string& text() const { return text_; }

  void add(int64_t number) { text_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  void add(const std::string& text) {
    add(static_cast<int64_t>(text.size()));
    text_ += text;
  }
  template <class Numbers> void add_all(const Numbers& numbers) {
    add(static_cast<int64_t>(std::ranges::distance(numbers)));
    for (const auto number : numbers) add(static_cast<int64_t>(number));
  }
  int64_t number() {
    int64_t number = 0;
    std::memcpy(&number, text_.data() + std::exchange(at_, at_ + sizeof number), sizeof number);
    return number;
  }
  std::string words() {
    const auto size = static_cast<size_t>(number());
    return text_.substr(std::exchange(at_, at_ + size), size);
  }
  template <class Number> std::vector<Number> all() {
    std::vector<Number> numbers(static_cast<size_t>(number()));
    for (Number& each : numbers) each = static_cast<Number>(number());
    return numbers;
  }

 private:
  std::string text_;
  size_t at_ = 0;
};

/// Shards and Replicates; axes that cut a dim together are added in the order of their cuts.
inline void add_pattern(MoveMessage& message, const Pattern& pattern) {
  message.add(pattern.axes());
  for (int axis = 0; axis < pattern.axes(); ++axis) {
    message.add(pattern[axis].dim());
    message.add(pattern.depth(axis));
    message.add_all(pattern[axis].sizes());
  }
}

inline Pattern pattern_in(MoveMessage& message) {
  const auto axes = static_cast<int>(message.number());
  std::vector<Placement> placements;
  std::vector<int> depths;
  for (int axis = 0; axis < axes; ++axis) {
    const auto dim = static_cast<int>(message.number());
    depths.push_back(static_cast<int>(message.number()));
    std::vector<int64_t> sizes = message.all<int64_t>();
    placements.push_back(dim < 0 ? Placement(Replicate()) : Shard{dim, std::move(sizes)});
  }
  Pattern pattern(axes);
  // `set` makes a cut the innermost one.
  for (int depth = 0; depth < axes; ++depth) {
    for (int axis = 0; axis < axes; ++axis) {
      const auto at = static_cast<size_t>(axis);
      if (placements[at].is_shard() && depths[at] == depth) pattern.set(axis, placements[at]);
    }
  }
  return pattern;
}

}  // namespace weft
