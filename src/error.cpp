// SPDX-License-Identifier: Apache-2.0
#include "weft/error.h"

namespace weft {

void throw_invalid_argument(const std::string& what) { throw std::invalid_argument(what); }

void throw_runtime_error(const std::string& what) { throw std::runtime_error(what); }

}  // namespace weft
