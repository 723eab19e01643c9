// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace weft {

/// Name of the factor of dim `dim` in rules made for a call: "d0", "d1", ...
inline std::string dim_name(int dim, const char* prefix = "d") {
  std::string name = prefix;
  return name += std::to_string(dim);
}

/// Text of an array from its dims; "." for none.
inline std::string array_text(const std::string& dims) { return dims.empty() ? "." : dims; }

}  // namespace weft
