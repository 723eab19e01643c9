// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>

#include "src/comm/mpi/session.h"
#include "src/comm/tcp/meeting.h"

namespace weft {

/// Meets the other processes over TCP; the session's messages go over their connections. Only one
/// session of a process may exist at a time.
std::unique_ptr<MpiSession> tcp_session(const TcpMember& member,
                                        std::chrono::milliseconds deadline);

/// Called in a child of this process, which would keep the connections open after its parent.
void close_tcp_in_child();

}  // namespace weft
