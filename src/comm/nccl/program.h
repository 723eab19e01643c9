// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include "src/comm/nccl/library.h"
#include "src/comm/collective_parts.h"
#include "src/comm/transport.h"
#include "weft/storage.h"

namespace weft {

/// Local work of a rank after moves: reduces sources to a result, or copies one.
struct NcclStep {
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::f32;
  std::vector<const void*> sources = {};
  ReduceInto into = {};
  int64_t count = 0;
};

/// Moves that are queued as one group, and the steps after them.
struct NcclRound {
  std::vector<nccl::Move> moves = {};
  std::vector<NcclStep> steps = {};
};

/// One rank's part of a collective, as a sequence of NCCL moves and local steps.
struct NcclProgram {
  std::array<NcclRound, 2> rounds = {};
  /// Temporary memory of moves and steps, owned by the current stream.
  std::vector<Ref<Storage>> scratch = {};
};

/// Uses NCCL's collectives when all parts are equal, else messages. With `in_rank_order` reductions
/// use messages and `reduce_n`, with the same bits as between ranks in memory.
NcclProgram program_of(const Collective& call, int rank, int size, bool in_rank_order);

/// Queues a step on the current stream of its device.
void run_step(const NcclStep& step);

}  // namespace weft
