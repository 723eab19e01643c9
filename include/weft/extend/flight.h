// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/export.h"

namespace weft {

/// The contents of flight records. Each rank of a job that has WEFT_FLIGHT, a folder, in its
/// environment keeps its last 1,024 collectives and messages, and writes them there as
/// `rank-<r>.json` when its world fails or the process gets SIGUSR1.
struct FlightSummary {
  /// All, and those that were posted, but not ended when the record was written.
  int64_t operations = 0, unfinished = 0;
  /// The time from the first to the last moment that is recorded.
  double seconds = 0;
  /// Ranks of the job whose record is not among the files.
  std::vector<int> missing = {};
};

/// Merges records, one a rank, into a Chrome trace (https://ui.perfetto.dev), a process a rank;
/// what has not ended lasts until its record was written. Ranks of several hosts meet by wall time.
/// std::invalid_argument names a file that is missing, malformed or of a rank that another one is
/// of, or that `out` cannot be written.
WEFT_API FlightSummary merge_flight_records(const std::vector<std::string>& files,
                                            const std::string& out);

/// Seconds that the calling thread has spent in Work::wait, in which ranks of one host also do the
/// work of their collectives. Waits for a GPU's collectives end before these do.
WEFT_API double seconds_in_waits();

}  // namespace weft
