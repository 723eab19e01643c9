// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/comm/flight/record.h"
#include "src/comm/nccl/lane.h"

namespace weft {

class NcclGroup;

/// A call that a graph holds.
struct RecordedCall {
  NcclCallName call;
  /// How it is done, for NcclAgreement.
  uint64_t how = 0;
  std::shared_ptr<NcclLane> lane;
  /// Received from other ranks each time.
  int64_t bytes = 0;
};

/// The calls of a group that one graph holds, in their order. Each time that it is played they
/// begin anew: are numbered, compared between ranks, counted and watched.
struct RecordedCalls {
  /// Outlives its lanes.
  std::shared_ptr<NcclGroup> group;
  uint64_t capture = 0;
  std::vector<RecordedCall> calls;
  /// Of those under way.
  std::vector<FlightOperation> flights;
};

}  // namespace weft
