// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>

#include "weft/communicator.h"
#include "weft/ranks.h"

namespace weft {

/// True when this build has NCCL for an emulated device.
bool has_emulated_nccl();

/// The same ranks with collectives that go through GPUs: each piece is copied to one, exchanged
/// there, and copied back. Messages and exchanges stay on the host.
Communicator by_way_of_gpus(const Communicator& world);

/// Runs `body` on ranks that are threads; their collectives go through emulated devices.
void run_on_nccl(int ranks, const std::function<void(Communicator)>& body);

/// Does what `run_on_nccl` does, with `use_deterministic_algorithms`.
void run_on_nccl_in_rank_order(int ranks, const std::function<void(Communicator)>& body);

/// Runs `body` on ranks that are threads and cannot access each other's devices.
void run_without_peers(int ranks, const std::function<void(Communicator)>& body,
                       const RunOptions& options = {.deadline = std::chrono::seconds(20),
                                                    .threads_per_rank = 1});

}  // namespace weft
