// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/export.h"
#include "weft/module.h"

namespace weft {

/// Returns a table of the module's parameters, a line each: name, shape, dtype, elements, whether
/// it is trained, layout, and bytes on this rank. Equal parameters of numbered modules share a
/// line, with `*` for the number and their count. The last lines have the sums.
WEFT_API std::string summary(const Module& module);

}  // namespace weft
