// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "src/comm/mpi/engine.h"
#include "src/comm/tcp/meeting.h"
#include "weft/communicator.h"

namespace weft {

/// True when the conformance cases run on processes that exchange all data over TCP.
bool runs_on_tcp();

/// A port of this host that is free now.
uint16_t free_port();

/// The member of a job that meets on this host.
TcpMember tcp_member(uint16_t port, int rank, int size);

/// Meets the others, and returns this process's engine, whose world shares no memory.
std::shared_ptr<MpiEngine> tcp_engine(const TcpMember& member, std::chrono::milliseconds deadline);

/// Runs the body on each rank, as a separate process.
void run_on_tcp(int ranks, const std::function<void(Communicator)>& body);

}  // namespace weft
