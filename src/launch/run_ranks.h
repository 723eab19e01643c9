// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/context.h"
#include "weft/ranks.h"

namespace weft {

/// Throws std::invalid_argument naming `what` for invalid options.
void check_options(const char* what, const RunOptions& options);

/// The number of kernel threads for each of `ranks` ranks that share this machine's cores.
int threads_of_rank(int ranks, const RunOptions& options);

/// Makes the calling thread and its context those of a rank; 0 `threads` leave OpenMP as it is.
void become_rank(Context& context, int threads, const RunOptions& options);

/// Prints "weft: <why>" and ends this process at once with code 1, without destructors: one of its
/// threads may never end.
[[noreturn]] void end_process(const std::string& why) noexcept;

}  // namespace weft
