// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "weft/export.h"

namespace weft {

/// Bytes that the calling rank has written to files and read from them so far for
/// `Module::offload_activations`. On `meta` those that it would have.
WEFT_API int64_t offloaded_activation_bytes();

}  // namespace weft
