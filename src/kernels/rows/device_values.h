// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/device/kernel/elements.h"
#include "src/device/kernel/thread_block.h"
#include "src/kernels/rows/rows.h"

namespace weft::cuda {
inline namespace WEFT_COMPILER {

/// Element `i` of a row, by default of a row of one value.
template <class C> WEFT_DEVICE C value_of(const Rows& rows, int64_t row, int64_t i = 0) {
  return load_element<C>(rows.data(), rows.dtype(), rows.at(row, i));
}
template <class C> WEFT_DEVICE void set_value(const Rows& rows, int64_t row, C value) {
  store_element(rows.data(), rows.dtype(), rows.at(row), value);
}
template <class C> WEFT_DEVICE void set_value(const Rows& rows, int64_t row, int64_t i, C value) {
  store_element(rows.data(), rows.dtype(), rows.at(row, i), value);
}

}  // namespace WEFT_COMPILER
}  // namespace weft::cuda
