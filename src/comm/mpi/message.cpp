// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "src/comm/mpi/engine.h"
#include "src/comm/mpi/mpi_transport.h"
#include "src/comm/mpi/wire.h"
#include "src/comm/read_collective.h"

namespace weft {

namespace {

class MpiMessage final : public MpiWork {
 public:
  MpiMessage(MpiTransport& transport, const Collective& call, uint64_t number)
      : MpiWork(transport, kMessage | number), stored_(call) {
    record(call_, transport.counters());
  }

 private:
  void post() override {
    if (!sends()) {
      return join(
          {MpiAddress::Kind::message, group().id, static_cast<uint64_t>(call_.tag), other()});
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
    send_to_other(header, goes_along() ? segments_of(piece_.send, bytes()) : MpiSegments{});
  }

  void take(const MpiHeader& header, MpiPayload payload) override {
    begun_ = true;
    if (!sends()) return receive_data(header, payload);
    if (header.topic == MpiTopic::taken) return mark_over();
    add_stream(true, other(), header.tag, segments_of(piece_.send, bytes()));
  }

  void receive_data(const MpiHeader& header, MpiPayload payload) {
    if (header.elements != count_ || header.dtype != piece_.dtype) {
      fail_message(other(), header.dtype, header.elements);
    }
    add_received(bytes());
    MpiHeader answer{.topic = MpiTopic::taken, .from = rank(), .group = group().id};
    answer.sequence = header.sequence;
    if (!goes_along()) {
      answer.topic = MpiTopic::grant;
      answer.tag = engine().new_tags();
      add_stream(false, other(), answer.tag, segments_of(piece_.recv, bytes()));
      return send_to_other(answer);
    }
    if (bytes() > 0) std::memcpy(piece_.recv, payload.data(), static_cast<size_t>(bytes()));
    send_to_other(answer);
    mark_over();
  }

  void moved(size_t, size_t) override {
    if (all_moved()) mark_over();
  }

  void send_to_other(const MpiHeader& header, const MpiSegments& data = {}) {
    engine().send(group().world_rank(other()), header, {}, data);
  }

  std::vector<int> awaited_ranks() const override { return {other()}; }
  const char* uncalled() const override { return sends() ? "receive it" : "send it"; }
  std::string words() const override { return message_in_words(call_); }

  bool sends() const { return call_.kind == CollectiveKind::send; }
  int other() const { return call_.root; }
  int64_t bytes() const { return count_ * static_cast<int64_t>(size_of(piece_.dtype)); }
  bool goes_along() const { return padded(bytes()) <= kMpiShortBytes; }

  const StoredCollective stored_;
  const Collective& call_ = stored_.call();
  const Piece& piece_ = call_.pieces[0];
  const int64_t count_ = piece_.counts[0];
};

}  // namespace

std::unique_ptr<MpiWork> mpi_message(MpiTransport& transport, const Collective& call,
                                     uint64_t number) {
  return std::make_unique<MpiMessage>(transport, call, number);
}

}  // namespace weft
