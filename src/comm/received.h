// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "src/comm/transport.h"

namespace weft {

/// Returns the bytes that a rank receives from others in a call, counted the same way on every kind
/// of interconnect.
int64_t received_bytes(const Collective& call, int rank, int size);

}  // namespace weft
