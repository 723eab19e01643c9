// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string_view>

#include "weft/export.h"

namespace weft {

/// The combination of values of several ranks. `avg` is the sum divided by the number of ranks.
enum class ReduceOp : uint8_t { sum, avg, max, min };

WEFT_API std::string_view name_of(ReduceOp op);
WEFT_API std::ostream& operator<<(std::ostream& out, ReduceOp op);

}  // namespace weft
