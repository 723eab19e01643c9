// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "src/comm/tcp/sockets.h"

namespace weft {

/// A process of a job whose processes meet over TCP.
struct TcpMember {
  /// The host and port at which process 0 listens.
  TcpEndpoint rendezvous;
  /// Equal for the processes of a job; those of another are refused.
  std::string job = {};
  int rank = 0;
  int size = 1;
  /// The processes of each host, for errors; 0 where they are not known to be equally many.
  int local_size = 0;
  /// Given to all others; the first 1,000 bytes.
  std::string text = {};
  /// How long a host may be silent before its connections end; 0: any time.
  std::chrono::seconds timeout{30};
};

/// One process's connections to the others.
struct TcpProcesses {
  /// By rank; none to itself.
  std::vector<OwnedDescriptor> links;
  /// The address of each process, and its text.
  std::vector<std::string> names, texts;
};

/// Meets the other processes at the rendezvous, and connects each to each. Connections that do not
/// speak this protocol are dropped. std::runtime_error, with the same sentence on all processes
/// that have come, when the port is in use, processes do not come or disagree about the job, or
/// hosts do not reach each other.
TcpProcesses meet_by_tcp(const TcpMember& member, std::chrono::milliseconds deadline);

}  // namespace weft
