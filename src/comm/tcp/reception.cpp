// SPDX-License-Identifier: Apache-2.0
#include "src/comm/tcp/reception.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

TcpCard card_of(const TcpMember& member, const std::string& text) {
  TcpCard card;
  card.rank = member.rank;
  card.size = member.size;
  card.job = xxh3_of(std::as_bytes(std::span(member.job)));
  put_in_field(card.text, text);
  return card;
}

std::optional<TcpArrival> TcpReception::next(TcpClock::time_point until,
                                             std::span<const int> watched, int& found) {
  found = -1;
  while (true) {
    std::vector<pollfd> all{{listener_.get(), POLLIN, 0}};
    for (const TcpArrival& guest : pending_) all.push_back({guest.socket.get(), POLLIN, 0});
    for (const int one : watched) all.push_back({one, POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - TcpClock::now()).count();
    const int ready =
        ::poll(all.data(), all.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 1000)));
    if (ready < 0 && errno != EINTR) fail_call("poll", std::strerror(errno));
    if (ready <= 0 && left <= 0) return {};
    const size_t waiting = pending_.size();
    for (size_t i = 0; ready > 0 && i < watched.size(); ++i) {
      if (all[1 + waiting + i].revents == 0) continue;
      found = static_cast<int>(i);
      return {};
    }
    std::optional<TcpArrival> come;
    for (size_t i = waiting; ready > 0 && i-- > 0 && !come;) {
      if (all[1 + i].revents != 0) come = read(i);
    }
    if (ready > 0 && all[0].revents != 0) accept_one();
    drop_silent();
    if (come) return come;
  }
}

void TcpReception::accept_one() {
  TcpArrival guest{OwnedDescriptor(
      above_standard(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)))};
  if (guest.socket.get() < 0) {
    if (errno != EMFILE && errno != ENFILE) return;
    fail_call("connect", "this process has reached its limit of open files (ulimit -n)");
  }
  guest.name = peer_address(guest.socket.get());
  if (pending_.size() >= most_) pending_.erase(pending_.begin());
  pending_.push_back(std::move(guest));
}

/// Reads more of a card; the guest whose card is whole leaves the waiting ones.
std::optional<TcpArrival> TcpReception::read(size_t index) {
  TcpArrival& guest = pending_[index];
  char* const at = reinterpret_cast<char*>(&guest.card) + guest.got;
  const ssize_t got = ::recv(guest.socket.get(), at, sizeof(TcpCard) - guest.got, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  guest.got += static_cast<size_t>(std::max<ssize_t>(got, 0));
  const bool is_stranger = got <= 0 || std::memcmp(guest.card.magic.data(), TcpCard().magic.data(),
                                                   std::min(guest.got, size_t{8})) != 0;
  // Cards of another version may be shorter.
  const bool is_whole =
      guest.got == sizeof(TcpCard) || (guest.got >= 12 && guest.card.version != TcpCard().version);
  std::optional<TcpArrival> come;
  if (!is_stranger && !is_whole) return come;
  if (!is_stranger) come = std::move(guest);
  pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(index));
  return come;
}

void TcpReception::drop_silent() {
  const auto since = TcpClock::now() - std::chrono::seconds(10);
  std::erase_if(pending_, [&](const TcpArrival& guest) { return guest.since < since; });
}

}  // namespace weft
