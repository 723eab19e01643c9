// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>

namespace weft {

/// The maximum number of axes of a mesh.
inline constexpr int kMaxAxes = 8;

/// A position in a mesh: one coordinate per axis.
using Coordinates = std::array<int, kMaxAxes>;

/// A short ordered list of different axes of a mesh, stored inline.
class Axes {
 public:
  Axes() = default;
  Axes(std::initializer_list<int> axes) {
    for (int axis : axes) push_back(axis);
  }

  void push_back(int axis) { values_[count_++] = static_cast<int8_t>(axis); }
  int size() const { return count_; }
  bool empty() const { return count_ == 0; }
  int operator[](int i) const { return values_[static_cast<size_t>(i)]; }
  int back() const { return values_[count_ - size_t{1}]; }
  const int8_t* begin() const { return values_.data(); }
  const int8_t* end() const { return values_.data() + count_; }
  bool contains(int axis) const { return std::find(begin(), end(), axis) != end(); }
  /// A bit mask with one bit per axis.
  unsigned mask() const {
    unsigned mask = 0;
    for (int axis : *this) mask |= 1u << axis;
    return mask;
  }
  bool operator==(const Axes&) const = default;

 private:
  std::array<int8_t, kMaxAxes> values_{};
  uint8_t count_ = 0;
};

}  // namespace weft
