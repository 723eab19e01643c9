// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/context.h"
#include "weft/ranks.h"

namespace weft {

/// Throws std::invalid_argument naming `what` for invalid options.
void check_options(const char* what, const RunOptions& options);

/// The number of kernel threads for each of `ranks` ranks that share this machine's cores.
int threads_of_rank(int ranks, const RunOptions& options);

/// Makes the calling thread and its context those of a rank.
void become_rank(Context& context, int threads, const RunOptions& options);

}  // namespace weft
