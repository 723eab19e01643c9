// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "weft/extend/file.h"

namespace weft {

using TcpClock = std::chrono::steady_clock;

/// A host and a port: "10.0.0.3:29500", "[fe80::1]:29500".
struct TcpEndpoint {
  std::string host;
  uint16_t port = 0;

  std::string in_words() const;
};

/// Reads the "HOST:PORT" of a rendezvous. std::invalid_argument when it is anything else.
TcpEndpoint endpoint_of(const std::string& text);

/// True for an address that only processes of this host reach.
bool is_loopback(const std::string& address);

/// Listens on a port, 0 for any, of one address of this host, or of all if `address` is empty.
/// Returns none, and sets errno, when that fails.
OwnedDescriptor listening_socket(const std::string& address, uint16_t port);
uint16_t port_of(int socket);
/// The address of the other end, or of this one, as numbers.
std::string peer_address(int socket);
std::string own_address(int socket);

/// Tries each address of the host once; returns none, and the reason in `why`, when none answers
/// until `until`. std::runtime_error when there is no host of that name.
OwnedDescriptor connected_socket(const TcpEndpoint& to, TcpClock::time_point until,
                                 std::string& why);

/// Sends small messages at once, and ends a connection over which nothing is sent when the other
/// host has not answered for so long; 0: never.
void set_connection_options(int socket, std::chrono::seconds timeout);
/// How long ago the other host's system answered last; it answers for a process that is stopped,
/// too.
struct TcpSilence {
  std::chrono::milliseconds time{};
  /// Something was sent since then.
  bool is_owed = false;
  /// It was time to send again, or keepalive asks it: if it lived, it would have answered by now.
  bool is_overdue = false;
};
TcpSilence silence_of(int socket);

/// Waits until a descriptor is ready for poll's `events`, or until `until`.
bool await_ready(int descriptor, short events, TcpClock::time_point until);
/// Send and receive all bytes. Return false when the connection ends before, or `until` passes.
bool send_whole(int socket, const void* data, size_t bytes, TcpClock::time_point until);
bool receive_whole(int socket, void* data, size_t bytes, TcpClock::time_point until);

}  // namespace weft
