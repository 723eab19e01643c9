// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>

#include "weft/communicator.h"
#include "weft/context.h"

namespace weft {

/// True when this build has NCCL for an emulated device.
bool has_emulated_nccl();

/// The same ranks, whose collectives go by GPUs: each piece is copied to one, exchanged there, and
/// copied back. Messages and exchanges stay on the host.
Communicator by_way_of_gpus(const Communicator& world);

/// `body` on ranks that are threads, whose collectives go by way of emulated devices.
void run_on_nccl(int ranks, const std::function<void(Communicator)>& body);

/// The same with `reduce_in_rank_order`.
void run_on_nccl_in_rank_order(int ranks, const std::function<void(Communicator)>& body);

/// `body` on ranks that are threads and do not see each other's devices.
void run_without_peers(int ranks, const std::function<void(Communicator)>& body,
                       const RunOptions& options = {.deadline = std::chrono::seconds(20),
                                                    .threads_per_rank = 1});

}  // namespace weft
