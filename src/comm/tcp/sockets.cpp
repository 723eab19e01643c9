// SPDX-License-Identifier: Apache-2.0
#include "src/comm/tcp/sockets.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "weft/error.h"

namespace weft {

std::string TcpEndpoint::in_words() const {
  const bool is_ipv6 = host.find(':') != host.npos;
  return concat(is_ipv6 ? "[" : "", host, is_ipv6 ? "]:" : ":", port);
}

TcpEndpoint endpoint_of(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string digits = colon == text.npos ? "" : text.substr(colon + 1);
  TcpEndpoint made{text.substr(0, std::min(colon, text.size()))};
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, made.port);
  const bool has_port = !digits.empty() && error == std::errc() && stop == end && made.port > 0;
  if (made.host.starts_with('[') && made.host.ends_with(']')) {
    made.host = made.host.substr(1, made.host.size() - 2);
  } else if (made.host.find(':') != made.host.npos) {
    made.host.clear();  // an IPv6 address without brackets may end with what looks like a port
  }
  if (has_port && !made.host.empty()) return made;
  fail("rendezvous: the address is ", in_quotes(text),
       ", expected HOST:PORT, as in 10.0.0.1:29500");
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

namespace {

struct Addresses {
  /// Looks the host up; `error` is that of getaddrinfo. An empty host: all addresses of this one.
  Addresses(const std::string& host, uint16_t port, int family = AF_UNSPEC) {
    addrinfo hints = {};
    hints.ai_family = family;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | (host.empty() ? AI_PASSIVE : 0);
    addrinfo* found = nullptr;
    error = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints,
                        &found);
    first.reset(error == 0 ? found : nullptr);
  }
  int error = 0;
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> first{nullptr, freeaddrinfo};
};

}  // namespace

static OwnedDescriptor new_tcp_socket(int family) {
  return OwnedDescriptor(
      above_standard(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
}

static void set_option(int socket, int level, int name, int value) {
  // Options tune a connection; one that a system lacks is no error.
  static_cast<void>(::setsockopt(socket, level, name, &value, sizeof value));
}

OwnedDescriptor listening_socket(const std::string& address, uint16_t port) {
  // One IPv6 socket accepts both kinds; a host without IPv6 has the other kind only.
  for (const int family : {AF_INET6, AF_INET}) {
    const Addresses addresses(address == "localhost" ? "127.0.0.1" : address, port, family);
    if (!addresses.first) continue;
    OwnedDescriptor made = new_tcp_socket(family);
    if (made.get() < 0) continue;
    set_option(made.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (family == AF_INET6) set_option(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (::bind(made.get(), addresses.first->ai_addr, addresses.first->ai_addrlen) == 0 &&
        ::listen(made.get(), SOMAXCONN) == 0) {
      return made;
    }
    if (errno == EADDRINUSE || errno == EACCES) return OwnedDescriptor();
  }
  return OwnedDescriptor();
}

using NameCall = int (*)(int, sockaddr*, socklen_t*);

static sockaddr_storage address_by(NameCall call, int socket, socklen_t& length) {
  sockaddr_storage address = {};
  length = sizeof address;
  if (call(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) length = 0;
  return address;
}

static std::string in_numbers(NameCall call, int socket) {
  socklen_t length = 0;
  const sockaddr_storage address = address_by(call, socket, length);
  std::array<char, NI_MAXHOST> host{};
  if (length == 0 || getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host.data(),
                                 host.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "an unknown address";
  }
  const std::string text = host.data();
  // An IPv4 address as an IPv6 socket sees it.
  const std::string mapped = "::ffff:";
  const bool is_mapped = text.starts_with(mapped) && text.find('.') != text.npos;
  return is_mapped ? text.substr(mapped.size()) : text;
}

std::string peer_address(int socket) { return in_numbers(::getpeername, socket); }
std::string own_address(int socket) { return in_numbers(::getsockname, socket); }

uint16_t port_of(int socket) {
  socklen_t length = 0;
  const sockaddr_storage address = address_by(::getsockname, socket, length);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

/// True when a socket is connected to itself: the system may draw the port that it connects to.
static bool is_own_peer(int socket) {
  socklen_t length = 0;
  const sockaddr_storage own = address_by(::getsockname, socket, length);
  const sockaddr_storage peer = address_by(::getpeername, socket, length);
  return std::memcmp(&own, &peer, sizeof own) == 0;
}

/// The errno of connecting to one address; 0: connected.
static int try_to_connect(int socket, const addrinfo& to, TcpClock::time_point until) {
  if (::connect(socket, to.ai_addr, to.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    if (!await_ready(socket, POLLOUT, until)) return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof error;
    if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
    if (error != 0) return error;
  }
  return is_own_peer(socket) ? ECONNREFUSED : 0;
}

OwnedDescriptor connected_socket(const TcpEndpoint& to, TcpClock::time_point until,
                                 std::string& why) {
  const Addresses addresses(to.host, to.port);
  if (!addresses.first) {
    why = gai_strerror(addresses.error);
    if (addresses.error == EAI_NONAME) {
      fail_call("connect", "the host is ", in_quotes(to.host), ", expected a known one: ", why);
    }
    return OwnedDescriptor();
  }
  for (const addrinfo* one = addresses.first.get(); one; one = one->ai_next) {
    OwnedDescriptor made = new_tcp_socket(one->ai_family);
    const int error = made.get() < 0 ? errno : try_to_connect(made.get(), *one, until);
    if (error == 0) return made;
    why = std::strerror(error);
  }
  return OwnedDescriptor();
}

void set_connection_options(int socket, std::chrono::seconds timeout) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  if (timeout.count() == 0) return;
  // Keepalive finds a silent host where nothing is sent, `silence_of` where something is. The user
  // timeout would also end connections to hosts that answer for a process that is stopped.
  constexpr int kProbes = 5;
  constexpr int64_t kLongest = 180'000;  // the system takes no longer time between probes
  const auto seconds = static_cast<int>(std::min<int64_t>(timeout.count(), kLongest));
  const int between = std::max(1, seconds / (kProbes + 1));
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, between);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, between);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

TcpSilence silence_of(int socket) {
  tcp_info info = {};
  socklen_t length = sizeof info;
  int queued = 0;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  if (::ioctl(socket, TIOCOUTQ, &queued) != 0) return {};
  // A full system answers, but takes nothing: then what is sent again stays unacknowledged, and the
  // next answer comes when it is sent once more.
  const int64_t silent = info.tcpi_last_ack_recv, to_next = info.tcpi_rto / 1000;
  const bool has_sent = info.tcpi_unacked > 0;
  const bool is_unanswered = has_sent && silent > info.tcpi_last_data_sent;
  return {std::chrono::milliseconds(silent), is_unanswered || info.tcpi_probes > 0,
          has_sent ? silent > to_next + to_next / 2 : queued == 0};
}

bool await_ready(int descriptor, short events, TcpClock::time_point until) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - TcpClock::now()).count();
    pollfd one{descriptor, events, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail_call("poll", std::strerror(errno));
    if (left <= 0) return false;
  }
}

/// Repeats `move(at, bytes)`, a call of send or recv, until all bytes have moved.
template <class Move>
static bool move_whole(int socket, short events, size_t bytes, TcpClock::time_point until,
                       Move&& move) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t moved = move(done, bytes - done);
    if (moved > 0) {
      done += static_cast<size_t>(moved);
    } else if (moved == 0 || (errno != EAGAIN && errno != EINTR)) {
      return false;
    } else if (!await_ready(socket, events, until)) {
      return false;
    }
  }
  return true;
}

bool send_whole(int socket, const void* data, size_t bytes, TcpClock::time_point until) {
  return move_whole(socket, POLLOUT, bytes, until, [&](size_t at, size_t left) {
    return ::send(socket, static_cast<const std::byte*>(data) + at, left, MSG_NOSIGNAL);
  });
}

bool receive_whole(int socket, void* data, size_t bytes, TcpClock::time_point until) {
  return move_whole(socket, POLLIN, bytes, until, [&](size_t at, size_t left) {
    return ::recv(socket, static_cast<std::byte*>(data) + at, left, 0);
  });
}

}  // namespace weft
