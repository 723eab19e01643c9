// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/comm/tcp/meeting.h"
#include "src/comm/tcp/sockets.h"

namespace weft {

/// The only kind of message between processes that meet.
struct TcpCard {
  std::array<char, 8> magic{'w', 'e', 'f', 't', ' ', 't', 'c', 'p'};
  uint32_t version = 1;
  int32_t rank = 0;
  int32_t size = 0;
  /// The port at which the process listens for those of higher ranks.
  uint32_t port = 0;
  /// The hash of the job's name.
  uint64_t job = 0;
  /// Drawn by process 0; processes that connect to others prove by it that they have met.
  uint64_t secret = 0;
  /// The address of the process; in a card to process 0, the job's name.
  std::array<char, 64> address{};
  /// The text of the process, or in an answer, what is wrong; empty: nothing.
  std::array<char, 1024> text{};

  bool is_of_weft() const { return magic == TcpCard().magic; }
};
static_assert(sizeof(TcpCard) == 40 + 64 + 1024);

TcpCard card_of(const TcpMember& member, const std::string& text);

/// A process that has connected and sent its card.
struct TcpArrival {
  OwnedDescriptor socket;
  TcpCard card = {};
  size_t got = 0;
  TcpClock::time_point since = TcpClock::now();
  std::string name = {};
};

template <size_t size> void put_in_field(std::array<char, size>& field, const std::string& text) {
  field.fill('\0');
  std::copy_n(text.begin(), std::min(text.size(), size - 1), field.begin());
}

template <size_t size> std::string in_field(const std::array<char, size>& field) {
  return {field.data(), strnlen(field.data(), size)};
}

/// Accepts connections, and drops those that do not send a card: after 10 s, or the oldest one when
/// there are too many.
class TcpReception {
 public:
  TcpReception(OwnedDescriptor listener, int processes)
      : listener_(std::move(listener)), most_(64 + 2 * static_cast<size_t>(processes)) {}

  uint16_t port() const { return port_of(listener_.get()); }

  /// Returns the next process whose card has come; none at `until`, or when one of `watched` can be
  /// read, whose index is then set.
  std::optional<TcpArrival> next(TcpClock::time_point until, std::span<const int> watched,
                                 int& found);

 private:
  void accept_one();
  std::optional<TcpArrival> read(size_t index);
  void drop_silent();

  OwnedDescriptor listener_;
  /// The most connections that wait for their cards.
  const size_t most_;
  std::vector<TcpArrival> pending_;
};

}  // namespace weft
