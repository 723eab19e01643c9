// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/owned_descriptor.h"

namespace weft {

/// The messages between the processes of a host that meet (`rendezvous`).
struct Greeting {
  int32_t index = 0;
  int32_t count = 0;
  /// A build, or what is wrong.
  std::array<char, 1000> text{};
};

/// The process at the other end of a connection: its user and number.
ucred peer_of(int connection);

/// Sends a greeting with copies of `descriptors`. Returns false when the other end is closed.
bool send_greeting(int to, Greeting greeting, const std::vector<int>& descriptors);
/// Waits for a greeting. Returns false when the other end is closed.
bool receive_greeting(int from, Greeting& greeting, std::vector<OwnedDescriptor>& descriptors);

/// Waits until one of the descriptors can be read, or accepted; returns false after `until`.
bool await_readable(std::span<pollfd> descriptors, std::chrono::steady_clock::time_point until);

}  // namespace weft
