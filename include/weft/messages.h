// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/communicator.h"
#include "weft/export.h"

namespace weft {

/// The same as Communicator::send, of memory on the piece's device: counts[0] elements from `send`.
/// The memory must stay until the Work is done; ranks go on meanwhile.
WEFT_API Work send(const Communicator& ranks, const Piece& piece, int to, int tag = 0);
/// The same as Communicator::recv: counts[0] elements to `recv`.
WEFT_API Work receive(const Communicator& ranks, const Piece& piece, int from, int tag = 0);

}  // namespace weft
