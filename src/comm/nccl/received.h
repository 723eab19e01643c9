// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "src/comm/transport.h"

namespace weft {

/// Bytes that a rank receives from others in a call; what the other transports count.
int64_t received_bytes(const Collective& call, int rank, int size);

}  // namespace weft
