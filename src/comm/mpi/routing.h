// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <map>
#include <vector>

#include "src/comm/mpi/wire.h"

namespace weft {

class MpiWork;

/// The destination of a short message.
struct MpiAddress {
  enum class Kind : uint8_t { collective, message, reply };
  Kind kind = Kind::collective;
  uint64_t group = 0;
  /// The collective's sequence number, a send's tag, or the number of the send replied to.
  uint64_t number = 0;
  /// The sending rank of a send.
  int32_t from = 0;
  auto operator<=>(const MpiAddress&) const = default;
};
MpiAddress address_of(const MpiHeader& header);

/// Delivers short messages to the works they are for; either may come first.
class MpiRouting {
 public:
  /// Delivers messages of that address to `work`; of sends, only the next undelivered one.
  void join(const MpiAddress& address, MpiWork& work);
  void leave(const MpiAddress& address, const MpiWork& work);
  void route(const MpiHeader& header, MpiPayload payload);

 private:
  struct Message {
    MpiHeader header;
    std::vector<std::byte> payload;
  };
  /// At least one of the two is empty.
  struct Meeting {
    std::vector<Message> messages;
    std::vector<MpiWork*> works;
  };
  std::map<MpiAddress, Meeting> meetings_;
};

}  // namespace weft
