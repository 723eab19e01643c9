// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/comm/flight/record.h"
#include "src/comm/nccl/lane.h"

namespace weft {

class NcclGroup;

/// A call recorded in a graph.
struct RecordedCall {
  NcclCallName call;
  /// How it is carried out, for NcclAgreement.
  uint64_t variant = 0;
  std::shared_ptr<NcclLane> lane;
  /// Bytes received from other ranks per replay.
  int64_t bytes = 0;
};

/// The calls of a group in one graph, in order. Each replay starts them anew: they are numbered,
/// compared between ranks, counted and watched.
struct RecordedCalls {
  /// Must outlive its lanes.
  std::shared_ptr<NcclGroup> group;
  uint64_t capture = 0;
  std::vector<RecordedCall> calls;
  /// Flight records of the calls in progress.
  std::vector<FlightOperation> flights;
};

}  // namespace weft
