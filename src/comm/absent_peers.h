// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/comm/transport.h"

namespace weft {

/// Runs one rank's part of a collective whose other ranks do not exist (a fake world): copies the
/// rank's own part and returns the bytes that the others would have sent. `shown` is a buffer of
/// one pointer a rank.
int64_t run_with_absent_peers(const Collective& call, int rank, std::vector<const void*>& shown);
int64_t run_with_absent_peers(const Exchange& call, ExchangeReader& reader, int rank,
                              std::vector<const void*>& shown);

}  // namespace weft
