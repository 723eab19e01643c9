// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace weft {

/// The levels of x86-64 for which the library is compiled.
extern const bool kNeedsX8664V3, kNeedsX8664V4;

}  // namespace weft
