// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "src/launch/launched.h"

namespace weft {

class MpiEngine;

/// A job whose processes are connected by MPI.
struct MpiJob {
  std::shared_ptr<MpiEngine> engine;
  /// The host of each rank, numbered from 0 by first occurrence.
  std::vector<int> hosts;
  /// The ranks on this process's host.
  std::vector<int> here;
};

/// Called by all processes of the job. std::runtime_error when MPI's ranks differ from the
/// launcher's, or when a process runs another build.
MpiJob join_mpi_job(const Launched& launched, const std::string& build,
                    std::chrono::milliseconds deadline);

}  // namespace weft
