// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft {

/// Writes the matrix [rows, columns] of elements of so many bytes as [columns, rows].
inline void transpose_bytes(const std::byte* from, int64_t rows, int64_t columns, int64_t element,
                            std::byte* to) {
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(to + (c * rows + r) * element, from + (r * columns + c) * element,
                  static_cast<size_t>(element));
    }
  }
}

}  // namespace weft
