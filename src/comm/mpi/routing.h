// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <map>
#include <vector>

#include "src/comm/mpi/wire.h"

namespace weft {

class MpiWork;

/// Whom a short message is for.
struct MpiAddress {
  enum class Kind : uint8_t { collective, letter, reply };
  Kind kind = Kind::collective;
  uint64_t group = 0;
  /// The collective's sequence, a letter's tag, the number of the letter that a reply is to.
  uint64_t number = 0;
  /// The rank that a letter comes from.
  int32_t from = 0;
  auto operator<=>(const MpiAddress&) const = default;
};
MpiAddress address_of(const MpiHeader& header);

/// Brings short messages to the works that they are for, whichever comes first.
class MpiRouting {
 public:
  /// The messages of that address go to `work`; of letters only the next one that nobody takes.
  void join(const MpiAddress& address, MpiWork& work);
  void leave(const MpiAddress& address, const MpiWork& work);
  void route(const MpiHeader& header, MpiPayload payload);

 private:
  struct Message {
    MpiHeader header;
    std::vector<std::byte> payload;
  };
  /// One of them is empty.
  struct Meeting {
    std::vector<Message> messages;
    std::vector<MpiWork*> works;
  };
  std::map<MpiAddress, Meeting> meetings_;
};

}  // namespace weft
