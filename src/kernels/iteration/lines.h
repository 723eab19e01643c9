// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "src/base/numeric.h"

namespace weft {

/// n elements, `stride` elements apart.
struct Line {
  DType dtype;
  void* data;
  int64_t stride = 1;
};

/// The line from its element `elements` on.
inline Line moved(Line line, int64_t elements) {
  line.data = static_cast<char*>(line.data) +
              elements * line.stride * static_cast<int64_t>(size_of(line.dtype));
  return line;
}

/// Converts n elements: (to, its stride, from, its stride, n).
using LineConverter = void (*)(void*, int64_t, const void*, int64_t, int64_t);
LineConverter line_converter(DType to, DType from);

/// to = from, n elements, converted: floats to integers by truncation, integers to integers by the
/// lower bits, anything to bool by "is not zero". The two must be disjoint or the same.
inline void convert_line(const Line& to, const Line& from, int64_t n) {
  line_converter(to.dtype, from.dtype)(to.data, to.stride, from.data, from.stride, n);
}

/// The same to or from dense elements of a compute type.
template <class C> void load_line(C* to, const Line& from, int64_t n) {
  convert_line({dtype_of<C>, to}, from, n);
}
template <class C> void store_line(const Line& to, const C* from, int64_t n) {
  convert_line(to, {dtype_of<C>, const_cast<C*>(from)}, n);
}

/// Maximum number of adjacent lines that are moved together: a cache line of floats.
inline constexpr int64_t kSideBySide = 16;

/// The same for `lines` adjacent lines: each starts one element after the one before it. The dense
/// ones begin `pitch` elements apart. Cache lines are read and written once; line by line, each
/// would be touched as often as it has elements.
template <class C>
void load_side_by_side(C* to, int64_t pitch, const Line& from, int64_t lines, int64_t n);
template <class C>
void store_side_by_side(const Line& to, const C* from, int64_t pitch, int64_t lines, int64_t n);

/// Returns the element at `data`.
template <class C> C load_element(DType dtype, const void* data) {
  return visit(dtype, [&](auto type) {
    return static_cast<C>(*static_cast<const typename decltype(type)::type*>(data));
  });
}
template <class C> void store_element(DType dtype, void* data, C value) {
  store_line<C>({dtype, data}, &value, 1);
}

}  // namespace weft
