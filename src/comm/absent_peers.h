// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/comm/transport.h"

namespace weft {

/// Runs one rank's part of a collective whose other ranks are not there: copies what is its own and
/// returns the bytes that would have come from the others. `shown` is room for a pointer a
/// rank.
int64_t run_with_absent_peers(const Collective& call, int rank, std::vector<const void*>& shown);
int64_t run_with_absent_peers(const Exchange& call, ExchangeReader& reader, int rank,
                              std::vector<const void*>& shown);

}  // namespace weft
