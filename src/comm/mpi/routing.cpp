// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/routing.h"

#include "src/comm/mpi/work.h"

namespace weft {

MpiAddress address_of(const MpiHeader& header) {
  using Kind = MpiAddress::Kind;
  switch (header.topic) {
    case MpiTopic::message:
      return {Kind::message, header.group, static_cast<uint64_t>(header.tag), header.from};
    case MpiTopic::grant:
    case MpiTopic::taken: return {Kind::reply, 0, header.sequence, 0};
    default: return {Kind::collective, header.group, header.sequence, 0};
  }
}

void MpiRouting::join(const MpiAddress& address, MpiWork& work) {
  Meeting& meeting = meetings_[address];
  const bool takes_one = address.kind == MpiAddress::Kind::message;
  if (takes_one && !meeting.messages.empty()) {
    const Message first = std::move(meeting.messages.front());
    meeting.messages.erase(meeting.messages.begin());
    if (meeting.messages.empty()) meetings_.erase(address);
    return work.receive(first.header, first.payload);
  }
  meeting.works.push_back(&work);
  const std::vector<Message> messages = std::move(meeting.messages);
  meeting.messages.clear();
  for (const Message& message : messages) work.receive(message.header, message.payload);
}

void MpiRouting::leave(const MpiAddress& address, const MpiWork& work) {
  const auto found = meetings_.find(address);
  if (found == meetings_.end()) return;
  std::erase(found->second.works, &work);
  if (found->second.works.empty() && found->second.messages.empty()) meetings_.erase(found);
}

void MpiRouting::route(const MpiHeader& header, MpiPayload payload) {
  const MpiAddress address = address_of(header);
  Meeting& meeting = meetings_[address];
  if (meeting.works.empty()) {
    meeting.messages.push_back({header, {payload.begin(), payload.end()}});
    return;
  }
  MpiWork* work = meeting.works.front();
  if (address.kind == MpiAddress::Kind::message) leave(address, *work);
  work->receive(header, payload);
}

}  // namespace weft
