// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"

namespace weft {

/// The most threads of one rank: those that the system does not give end the process from within
/// OpenMP.
inline constexpr int kMostThreads = 1024;

/// Sets how many threads the kernels of the calling rank use, 1 to kMostThreads. Other ranks that
/// are threads of this process keep their number; `run_ranks` and `connect` set it, too.
WEFT_API void set_num_threads(int threads);
/// Returns that number: at first, the cores that this process may use or OMP_NUM_THREADS.
WEFT_API int get_num_threads();

/// Makes the threads of kernels sleep while they have nothing to do, instead of polling for some
/// milliseconds: on a machine that also runs other programs, polling takes the cores of those that
/// compute. OpenMP reads this setting when the process starts, so the function sets
/// OMP_WAIT_POLICY=passive and starts the program again. Call it first in `main`, with its `argv`.
/// Does nothing when OMP_WAIT_POLICY or GOMP_SPINCOUNT is set.
WEFT_API void let_threads_sleep(char** argv);

}  // namespace weft
