// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/launched.h"

namespace weft {

class MpiEngine;

/// A job whose processes MPI connects.
struct MpiJob {
  std::shared_ptr<MpiEngine> engine;
  /// The host of each rank, counted from 0 as they come.
  std::vector<int> hosts;
  /// The ranks on this process's host.
  std::vector<int> here;
};

/// Called by all processes of the job. std::runtime_error when MPI knows other ranks than the
/// launcher said, and when one of them is another build.
MpiJob join_mpi_job(const Launched& launched, const std::string& build,
                    std::chrono::milliseconds deadline);

}  // namespace weft
