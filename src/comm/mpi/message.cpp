// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/message.h"

#include <cstring>

#include "src/comm/mpi/engine.h"
#include "src/comm/mpi/parts.h"

namespace weft {

MpiMessage::MpiMessage(MpiTransport& transport, const Collective& call, uint64_t number)
    : MpiWork(transport, kMessage | number),
      call_(call),
      piece_(call.pieces[0]),
      count_(call.pieces[0].counts[0]) {
  piece_.counts = {&count_, 1};
  call_.pieces = {&piece_, 1};
  record(call_, transport.counters());
}

void MpiMessage::stream(int tag) {
  const void* data = sends() ? piece_.send : piece_.recv;
  streams_.add(engine(), *this,
               {.sends = sends(),
                .peer = other_of_world(),
                .tag = tag,
                .segments = segments_of(data, bytes()),
                .allowed = SIZE_MAX});
}

void MpiMessage::moved(uint64_t token) {
  streams_.ended(engine(), *this, token);
  if (streams_.all_done()) mark_over();
}

void MpiMessage::post() {
  if (!sends()) {
    return join({MpiAddress::Kind::message, group().id, static_cast<uint64_t>(call_.tag), other()});
  }
  const uint64_t message = engine().new_message();
  join({MpiAddress::Kind::reply, 0, message, 0});
  const MpiHeader header{.topic = MpiTopic::message,
                         .from = rank(),
                         .group = group().id,
                         .sequence = message,
                         .elements = count_,
                         .tag = call_.tag,
                         .dtype = piece_.dtype};
  engine().send(other_of_world(), header, {},
                goes_along() ? segments_of(piece_.send, bytes()) : MpiSegments{});
}

void MpiMessage::take(const MpiHeader& header, MpiPayload payload) {
  answered_ = true;
  if (!sends()) return receive_data(header, payload);
  if (header.topic == MpiTopic::taken) return mark_over();
  stream(header.tag);
}

void MpiMessage::receive_data(const MpiHeader& header, MpiPayload payload) {
  if (header.elements != count_ || header.dtype != piece_.dtype) {
    fail_message(other(), header.dtype, header.elements);
  }
  add_received(bytes());
  MpiHeader answer{.topic = MpiTopic::taken, .from = rank(), .group = group().id};
  answer.sequence = header.sequence;
  if (!goes_along()) {
    answer.topic = MpiTopic::grant;
    answer.tag = engine().new_tags();
    stream(answer.tag);
    return engine().send(other_of_world(), answer);
  }
  if (bytes() > 0) std::memcpy(piece_.recv, payload.data(), static_cast<size_t>(bytes()));
  engine().send(other_of_world(), answer);
  mark_over();
}

}  // namespace weft
