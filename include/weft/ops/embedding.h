// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "weft/error.h"
#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

/// `embedding` (networks.h) whose gradient of the weight gets nothing from ids of row `padding`,
/// which counts from the end if it is negative.
WEFT_API Tensor embedding(const Tensor& weight, const Tensor& ids, std::optional<int64_t> padding);
/// Returns the row that `padding` names of a table with so many rows; std::invalid_argument
/// "what: ..." when it names none.
inline int64_t padding_row(const char* what, int64_t padding, int64_t rows) {
  if (padding >= -rows && padding < rows) return padding < 0 ? padding + rows : padding;
  fail(what, ": padding is ", padding, ", expected one from ", -rows, " to ", rows - 1);
}

}  // namespace weft
