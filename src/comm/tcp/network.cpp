// SPDX-License-Identifier: Apache-2.0
#include "src/comm/tcp/network.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "src/comm/mpi/wire.h"
#include "weft/error.h"

namespace weft {

/// Data is sent in parts of so many bytes, between which short messages leave.
static constexpr int64_t kLongestPart = int64_t{1} << 20;
static constexpr size_t kFramesAtOnce = 8;
static constexpr size_t kBufferBytes = size_t{64} << 10;
/// Reads from one process before the next one's turn.
static constexpr int kReadsInTurn = 32;
/// The most bytes of one process's short messages that no receive awaits; the next one then waits
/// in the connection. The most tags of its receives for which nothing was sent.
static constexpr size_t kMostEarlyBytes = size_t{64} << 20;
static constexpr size_t kMostReadyTags = size_t{1} << 17;

/// The newest one: a process has one but in tests.
static std::atomic<TcpNetwork*> network_of_process = nullptr;

TcpNetwork::TcpNetwork(TcpProcesses processes, std::chrono::seconds timeout)
    : timeout_(timeout), events_(above_standard(::epoll_create1(EPOLL_CLOEXEC))) {
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
  TcpNetwork* self = this;
  network_of_process.compare_exchange_strong(self, nullptr);
}

void TcpNetwork::close_in_child() {
  TcpNetwork* network = network_of_process;
  if (!network) return;
  for (Peer& peer : network->peers_) peer.socket.close();
  network->events_.close();
}

TcpRequest* TcpNetwork::send(const void* data, int64_t bytes, int to, int tag) {
  Peer& peer = peers_[static_cast<size_t>(to)];
  auto* memory = const_cast<std::byte*>(static_cast<const std::byte*>(data));
  if (!peer.loss.empty() && tag == 0) return nullptr;
  auto* request = new TcpRequest{memory, bytes, to, tag};
  const bool is_brief = bytes <= kMpiShortBytes;
  const Kind kind = tag == 0 ? Kind::message : is_brief ? Kind::brief : Kind::data;
  const Outgoing message{{kind, tag, bytes}, memory, request};
  if (kind != Kind::data) {
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
  if (bytes > kMpiShortBytes) {
    // Leaves with what is sent next, or at the next progress.
    peer.urgent.push_back({{Kind::ready, tag, 0}});
    return request;
  }
  const auto early = std::ranges::find(peer.early, tag, &std::pair<int, Bytes>::first);
  if (early == peer.early.end()) return request;
  const Frame frame{Kind::brief, tag, static_cast<int64_t>(early->second.size())};
  const Bytes kept = std::move(early->second);
  peer.early.erase(early);
  peer.early_bytes -= kept.size() + sizeof *early;
  if (!take_whole(peer, frame, kept.data())) lose_malformed(peer);
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
    if ((what & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) peer.is_ending = true;
  }
  for (Peer& peer : peers_) {
    if (peer.readable) read(peer);
    if (peer.writable) write(peer);
  }
  lose_silent();
}

void TcpNetwork::lose_silent() {
  const auto now = TcpClock::now();
  if (timeout_.count() == 0 || now < next_look_) return;
  next_look_ = now + std::chrono::seconds(1);
  for (Peer& peer : peers_) {
    if (peer.socket.get() < 0) continue;
    const TcpSilence silence = silence_of(peer.socket.get());
    if (!silence.is_owed || now - silence.time >= peer.owes_since) peer.owes_since = now;
    const bool is_overdue = silence.is_overdue && silence.time > timeout_ + std::chrono::seconds(1);
    if (now - peer.owes_since > timeout_ || is_overdue) {
      lose(peer, concat("its host has not answered for ", timeout_.count(), " s"));
    }
  }
}

/// Chooses frames to leave together; returns false when there are none.
bool TcpNetwork::choose_next(Peer& peer) {
  const auto has_room = [&] { return peer.leaving.size() < kFramesAtOnce; };
  while (has_room() && !peer.urgent.empty()) {
    peer.leaving.push_back(peer.urgent.front());
    peer.urgent.pop_front();
  }
  // Short messages that come later wait for one part of data at most.
  const auto is_data = [](const Outgoing& one) { return one.frame.kind == Kind::data; };
  if (has_room() && !peer.data.empty() && std::ranges::none_of(peer.leaving, is_data)) {
    Outgoing& first = peer.data.front();
    Outgoing part = first;
    part.frame.bytes = std::min(first.frame.bytes, kLongestPart);
    first.frame.bytes -= part.frame.bytes;
    first.data += part.frame.bytes;
    if (first.frame.bytes > 0) {
      part.request = nullptr;  // done with the last part
    } else {
      peer.data.pop_front();
    }
    peer.leaving.push_back(part);
  }
  return !peer.leaving.empty();
}

void TcpNetwork::write(Peer& peer) {
  while (peer.writable && choose_next(peer)) {
    const ssize_t sent = send_leaving(peer);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      peer.writable = false;
      // Reads first what the peer sent before it ended, which finds the end, too.
      if (errno != EAGAIN) peer.readable = true;
      return;
    }
    has_left(peer, static_cast<size_t>(sent));
  }
}

ssize_t TcpNetwork::send_leaving(Peer& peer) {
  std::array<iovec, 2 * kFramesAtOnce> parts;
  size_t count = 0, skipped = peer.sent;
  const auto add = [&](const void* bytes, size_t size) {
    const size_t skip = std::min(skipped, size);
    skipped -= skip;
    if (skip == size) return;
    parts[count++] = {const_cast<std::byte*>(static_cast<const std::byte*>(bytes)) + skip,
                      size - skip};
  };
  for (const Outgoing& one : peer.leaving) {
    add(&one.frame, sizeof one.frame);
    if (one.data) add(one.data, static_cast<size_t>(one.frame.bytes));
  }
  msghdr message = {};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  return ::sendmsg(peer.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void TcpNetwork::has_left(Peer& peer, size_t bytes) {
  peer.sent += bytes;
  while (!peer.leaving.empty()) {
    const Outgoing& first = peer.leaving.front();
    const size_t whole = sizeof(Frame) + static_cast<size_t>(first.frame.bytes);
    if (peer.sent < whole) return;
    peer.sent -= whole;
    if (first.request) first.request->is_done = true;
    peer.leaving.pop_front();
  }
}

void TcpNetwork::read(Peer& peer) {
  for (int turn = 0; turn < kReadsInTurn && peer.readable; ++turn) {
    if (!use_buffer(peer)) return;
    // Data goes directly to its memory; the frames behind it go to the buffer.
    TcpRequest* const to = peer.incoming;
    iovec parts[2] = {
        {to ? to->data + to->got : nullptr, static_cast<size_t>(peer.left_of_incoming)},
        {peer.buffer.data() + peer.end, peer.buffer.size() - peer.end}};
    const auto room = static_cast<ssize_t>(parts[0].iov_len + parts[1].iov_len);
    const ssize_t got = ::readv(peer.socket.get(), parts, 2);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      peer.readable = false;
      return;
    }
    if (got <= 0) return lose(peer, got == 0 ? "it was closed" : std::strerror(errno));
    // The system then tells when more has come.
    if (got < room && !peer.is_ending) peer.readable = false;
    const int64_t of_data = std::min<int64_t>(got, peer.left_of_incoming);
    peer.end += static_cast<size_t>(got - of_data);
    if (to) take_data(peer, of_data);
    // A message that waits for memory is looked at again.
    if (!peer.readable && !use_buffer(peer)) peer.readable = peer.loss.empty();
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
  if (frame.kind == Kind::message || frame.kind == Kind::brief) {
    if (frame.bytes < 0 || frame.bytes > kMpiMessageBytes) return lose_malformed(peer);
    const size_t whole = sizeof frame + static_cast<size_t>(frame.bytes);
    if (peer.end - peer.begin < whole) return true;
    if (frame.kind == Kind::message && any_.empty()) return false;
    if (frame.kind == Kind::brief && peer.early_bytes >= kMostEarlyBytes &&
        awaited_of(peer, frame.tag, true) == peer.awaited.end()) {
      return false;
    }
    const std::byte* const data = peer.buffer.data() + peer.begin + sizeof frame;
    if (!take_whole(peer, frame, data)) return lose_malformed(peer);
    peer.begin += whole;
    return true;
  }
  if (frame.kind == Kind::data) {
    if (!begin_data(peer, frame)) return lose_malformed(peer);
  } else if (frame.kind == Kind::ready) {
    if (peer.ready.size() >= kMostReadyTags) return lose_malformed(peer);
    take_ready(peer, frame.tag);
  } else {
    return lose_malformed(peer);
  }
  peer.begin += sizeof frame;
  return true;
}

bool TcpNetwork::lose_malformed(Peer& peer) {
  lose(peer, "a message is not one of this version of weft");
  return false;
}

/// Gives a short message to its receive, or keeps it; returns false when it does not fit.
bool TcpNetwork::take_whole(Peer& peer, const Frame& frame, const std::byte* data) {
  const auto size = static_cast<size_t>(frame.bytes);
  TcpRequest* request = nullptr;
  if (frame.kind == Kind::message) {
    request = any_.front();
    any_.pop_front();
    request->peer = static_cast<int>(&peer - peers_.data());
  } else {
    const auto first = awaited_of(peer, frame.tag, true);
    if (first == peer.awaited.end()) {
      peer.early.push_back({frame.tag, {data, data + size}});
      peer.early_bytes += size + sizeof peer.early.back();
      return true;
    }
    request = *first;
    if (request->bytes != frame.bytes) return false;
    peer.awaited.erase(first);
  }
  if (size > 0) std::memcpy(request->data, data, size);
  request->got = frame.bytes;
  request->is_done = true;
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

/// The first receive with that tag, of a message that is short or not.
std::deque<TcpRequest*>::iterator TcpNetwork::awaited_of(Peer& peer, int tag, bool is_brief) {
  return std::find_if(peer.awaited.begin(), peer.awaited.end(), [&](const TcpRequest* one) {
    return one->tag == tag && is_brief == (one->bytes <= kMpiShortBytes);
  });
}

bool TcpNetwork::begin_data(Peer& peer, const Frame& frame) {
  const auto first = awaited_of(peer, frame.tag, false);
  if (first == peer.awaited.end()) return false;
  if (frame.bytes < 0 || frame.bytes > (*first)->bytes - (*first)->got) return false;
  peer.incoming = *first;
  peer.left_of_incoming = frame.bytes;
  return true;
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
  for (const Outgoing& one : peer.leaving) forget(one);
  for (const Outgoing& one : peer.urgent) forget(one);
  peer.leaving.clear();
  peer.urgent.clear();
}

}  // namespace weft
