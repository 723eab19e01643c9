// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "weft/dataset.h"

namespace weft::rows {

/// The rows of one source of text, in the order of its tokens.
class Rows {
 public:
  Rows() = default;
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
  virtual ~Rows() = default;
  virtual int64_t count() const = 0;
  /// Writes one row. Several threads may copy at once.
  virtual void copy(int64_t row, const RowSpans& into) const = 0;
};

}  // namespace weft::rows
