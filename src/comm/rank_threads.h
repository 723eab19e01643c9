// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/context.h"

namespace weft {

/// std::invalid_argument naming `what` for options that make no sense.
void check_options(const char* what, const RunOptions& options);

/// Threads of the kernels of a rank that shares this machine's cores with so many.
int threads_of_rank(int ranks, const RunOptions& options);

/// Makes the calling thread, with its context, that of a rank.
void become_rank(Context& context, int threads, const RunOptions& options);

}  // namespace weft
