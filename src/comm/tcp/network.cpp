// SPDX-License-Identifier: Apache-2.0
#include "src/comm/tcp/network.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "src/comm/mpi/wire.h"
#include "weft/error.h"

namespace weft {

/// Data is sent in parts of so many bytes, between which short messages leave.
static constexpr int64_t kLongestPart = int64_t{1} << 20;
static constexpr size_t kBufferBytes = size_t{64} << 10;
/// Reads from one process before the next one's turn.
static constexpr int kReadsInTurn = 32;

static TcpNetwork* network_of_process = nullptr;

TcpNetwork::TcpNetwork(int rank, TcpProcesses processes)
    : rank_(rank), events_(above_standard(::epoll_create1(EPOLL_CLOEXEC))) {
  if (events_.get() < 0) fail_call("epoll_create1", std::strerror(errno));
  for (size_t r = 0; r < processes.links.size(); ++r) {
    peers_.emplace_back();
    Peer& peer = peers_.back();
    peer.socket = std::move(processes.links[r]);
    peer.name = processes.names[r];
    if (peer.socket.get() < 0) continue;
    peer.buffer.resize(kBufferBytes);
    peer.writable = true;
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.u64 = r;
    if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, peer.socket.get(), &event) != 0) {
      fail_call("epoll_ctl", std::strerror(errno));
    }
  }
  network_of_process = this;
}

TcpNetwork::~TcpNetwork() {
  if (network_of_process == this) network_of_process = nullptr;
}

void TcpNetwork::close_in_child() {
  if (!network_of_process) return;
  for (Peer& peer : network_of_process->peers_) peer.socket.close();
  network_of_process->events_.close();
}

TcpRequest* TcpNetwork::send(const void* data, int64_t bytes, int to, int tag) {
  Peer& peer = peers_[static_cast<size_t>(to)];
  auto* memory = const_cast<std::byte*>(static_cast<const std::byte*>(data));
  const bool is_short = tag == 0;
  if (!peer.loss.empty() && is_short) return nullptr;
  auto* request = new TcpRequest{memory, bytes, to, tag};
  const Outgoing message{{is_short ? Kind::message : Kind::data, tag, bytes}, memory, request};
  if (is_short) {
    peer.urgent.push_back(message);
  } else if (const auto ready = peer.ready.find(tag); ready != peer.ready.end()) {
    if (--ready->second == 0) peer.ready.erase(ready);
    peer.data.push_back(message);
  } else {
    peer.waiting.push_back(message);
  }
  write(peer);
  if (!request->is_done) return request;
  delete request;
  return nullptr;
}

TcpRequest* TcpNetwork::receive(void* data, int64_t bytes, int from, int tag) {
  auto* request = new TcpRequest{static_cast<std::byte*>(data), bytes, from, tag};
  if (tag == 0) {
    any_.push_back(request);
    return request;
  }
  Peer& peer = peers_[static_cast<size_t>(from)];
  peer.awaited.push_back(request);
  peer.urgent.push_back({{Kind::ready, tag, 0}});
  write(peer);
  return request;
}

void TcpNetwork::cancel(TcpRequest* request) {
  std::erase(any_, request);
  delete request;
}

void TcpNetwork::progress() {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(events_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    Peer& peer = peers_[events[static_cast<size_t>(i)].data.u64];
    const uint32_t what = events[static_cast<size_t>(i)].events;
    if ((what & EPOLLOUT) != 0) peer.writable = true;
    if ((what & ~uint32_t{EPOLLOUT}) != 0) peer.readable = true;
  }
  for (Peer& peer : peers_) {
    if (peer.readable) read(peer);
    if (peer.writable) write(peer);
  }
}

/// Makes the next frame the current one; returns false when there is none.
bool TcpNetwork::choose_next(Peer& peer) {
  if (peer.left_of_frame > 0 || peer.left_of_data > 0) return true;
  if (!peer.urgent.empty()) {
    peer.current = peer.urgent.front();
    peer.urgent.pop_front();
  } else if (!peer.data.empty()) {
    Outgoing& first = peer.data.front();
    peer.current = first;
    const int64_t part = std::min(first.frame.bytes, kLongestPart);
    peer.current.frame.bytes = part;
    first.frame.bytes -= part;
    first.data += part;
    if (first.frame.bytes > 0) {
      peer.current.request = nullptr;  // done with the last part
    } else {
      peer.data.pop_front();
    }
  } else {
    return false;
  }
  peer.left_of_frame = sizeof(Frame);
  peer.left_of_data = peer.current.frame.bytes;
  return true;
}

void TcpNetwork::write(Peer& peer) {
  while (peer.writable && choose_next(peer)) {
    const Outgoing& current = peer.current;
    auto* frame = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(&current.frame));
    auto* data = const_cast<std::byte*>(current.data);
    iovec parts[2] = {{frame + (sizeof(Frame) - peer.left_of_frame), peer.left_of_frame},
                      {data ? data + (current.frame.bytes - peer.left_of_data) : nullptr,
                       static_cast<size_t>(peer.left_of_data)}};
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t sent = ::sendmsg(peer.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      peer.writable = false;
      // What the peer sent before it ended is read first; that finds the end, too.
      if (errno != EAGAIN) peer.readable = true;
      return;
    }
    has_left(peer, static_cast<size_t>(sent));
  }
}

void TcpNetwork::has_left(Peer& peer, size_t bytes) {
  const size_t of_frame = std::min(bytes, peer.left_of_frame);
  peer.left_of_frame -= of_frame;
  peer.left_of_data -= static_cast<int64_t>(bytes - of_frame);
  const bool is_over = peer.left_of_frame == 0 && peer.left_of_data == 0;
  if (is_over && peer.current.request) peer.current.request->is_done = true;
}

void TcpNetwork::read(Peer& peer) {
  for (int turn = 0; turn < kReadsInTurn && peer.readable; ++turn) {
    if (!use_buffer(peer)) return;
    // Data goes directly to its memory; the frames behind it go to the buffer.
    TcpRequest* const to = peer.incoming;
    iovec parts[2] = {
        {to ? to->data + to->got : nullptr, static_cast<size_t>(peer.left_of_incoming)},
        {peer.buffer.data() + peer.end, peer.buffer.size() - peer.end}};
    const ssize_t got = ::readv(peer.socket.get(), parts, 2);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      peer.readable = false;
      return;
    }
    if (got <= 0) return lose(peer, got == 0 ? "it was closed" : std::strerror(errno));
    const int64_t of_data = std::min<int64_t>(got, peer.left_of_incoming);
    peer.end += static_cast<size_t>(got - of_data);
    if (to) take_data(peer, of_data);
  }
}

/// Handles what is in the buffer; returns false when a short message must wait for memory, or the
/// connection has ended.
bool TcpNetwork::use_buffer(Peer& peer) {
  while (true) {
    const size_t available = peer.end - peer.begin;
    if (peer.incoming && peer.left_of_incoming > 0) {
      const auto bytes = std::min<int64_t>(peer.left_of_incoming, static_cast<int64_t>(available));
      if (bytes == 0) break;
      std::memcpy(peer.incoming->data + peer.incoming->got, peer.buffer.data() + peer.begin,
                  static_cast<size_t>(bytes));
      peer.begin += static_cast<size_t>(bytes);
      take_data(peer, bytes);
      continue;
    }
    if (available < sizeof(Frame)) break;
    const size_t before = peer.begin;
    if (!use_frame(peer)) return false;
    if (peer.begin == before) break;
  }
  const auto at = peer.buffer.begin();
  std::copy(at + static_cast<std::ptrdiff_t>(peer.begin),
            at + static_cast<std::ptrdiff_t>(peer.end), at);
  peer.end -= std::exchange(peer.begin, 0);
  return true;
}

/// Handles one frame, if it is complete; returns false as `use_buffer` does.
bool TcpNetwork::use_frame(Peer& peer) {
  Frame frame;
  std::memcpy(&frame, peer.buffer.data() + peer.begin, sizeof frame);
  switch (frame.kind) {
    case Kind::ready: take_ready(peer, frame.tag); break;
    case Kind::data: begin_data(peer, frame); break;
    case Kind::message: {
      if (frame.bytes < 0 || frame.bytes > kMpiMessageBytes) break;
      const size_t whole = sizeof frame + static_cast<size_t>(frame.bytes);
      if (peer.end - peer.begin < whole) return true;
      if (any_.empty()) return false;
      TcpRequest& request = *any_.front();
      any_.pop_front();
      std::memcpy(request.data, peer.buffer.data() + peer.begin + sizeof frame,
                  static_cast<size_t>(frame.bytes));
      request.peer = static_cast<int>(&peer - peers_.data());
      request.got = frame.bytes;
      request.is_done = true;
      peer.begin += whole;
      return true;
    }
  }
  const bool is_data = frame.kind == Kind::data && peer.incoming;
  if (frame.kind != Kind::ready && !is_data) {
    lose(peer, "a message is not one of this version of weft");
    return false;
  }
  peer.begin += sizeof frame;
  if (is_data) take_data(peer, 0);
  return true;
}

void TcpNetwork::take_ready(Peer& peer, int tag) {
  const auto first = std::find_if(peer.waiting.begin(), peer.waiting.end(),
                                  [&](const Outgoing& one) { return one.frame.tag == tag; });
  if (first == peer.waiting.end()) {
    ++peer.ready[tag];
    return;
  }
  peer.data.push_back(*first);
  peer.waiting.erase(first);
}

void TcpNetwork::begin_data(Peer& peer, const Frame& frame) {
  const auto first = std::find_if(peer.awaited.begin(), peer.awaited.end(),
                                  [&](const TcpRequest* one) { return one->tag == frame.tag; });
  if (first == peer.awaited.end()) return;
  const int64_t room = (*first)->bytes - (*first)->got;
  if (frame.bytes < 0 || frame.bytes > room) return;
  peer.incoming = *first;
  peer.left_of_incoming = frame.bytes;
}

/// Counts bytes of the incoming data, which may end the frame and the receive.
void TcpNetwork::take_data(Peer& peer, int64_t bytes) {
  TcpRequest& request = *peer.incoming;
  request.got += bytes;
  peer.left_of_incoming -= bytes;
  if (peer.left_of_incoming > 0) return;
  peer.incoming = nullptr;
  if (request.got < request.bytes) return;
  std::erase(peer.awaited, &request);
  request.is_done = true;
}

void TcpNetwork::lose(Peer& peer, const std::string& reason) {
  peer.loss = concat("is gone (the connection to ", peer.name, " ended: ", reason, ")");
  peer.readable = peer.writable = false;
  peer.incoming = nullptr;
  peer.left_of_incoming = 0;
  peer.socket.close();
  // Nobody waits for short messages; calls that send or receive data find that the rank is gone.
  const auto forget = [](const Outgoing& one) {
    if (one.request && one.frame.kind == Kind::message) one.request->is_done = true;
  };
  if (peer.left_of_frame > 0 || peer.left_of_data > 0) forget(peer.current);
  for (const Outgoing& one : peer.urgent) forget(one);
  peer.urgent.clear();
  peer.left_of_frame = 0;
  peer.left_of_data = 0;
}

}  // namespace weft
