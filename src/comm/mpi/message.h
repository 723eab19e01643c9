// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/comm/mpi/work.h"

namespace weft {

/// One end of a point-to-point message between two processes.
class MpiMessage : public MpiWork {
 public:
  MpiMessage(MpiTransport& transport, const Collective& call, uint64_t number);

 protected:
  void moved(uint64_t token) final;
  bool has_begun() const final { return answered_; }
  std::vector<int> awaited_ranks() const final { return {other()}; }
  std::string words() const final { return message_in_words(call_); }
  void stop_routing() noexcept final;

  int other() const { return call_.root; }
  int other_of_world() const { return group().world_rank(call_.root); }
  int64_t bytes() const { return count_ * static_cast<int64_t>(size_of(piece_.dtype)); }
  bool goes_along() const { return padded(bytes()) <= kMpiShortBytes; }
  /// Transfers the data separately, under that tag.
  void stream(bool sends, int tag);

  Collective call_;
  Piece piece_;
  const int64_t count_;
  /// The address of the other rank's reply.
  MpiAddress address_;
  bool answered_ = false;
  MpiStreams streams_;
};

class MpiSend final : public MpiMessage {
 public:
  using MpiMessage::MpiMessage;

 private:
  void post() override;
  void take(const MpiHeader& header, MpiPayload payload) override;
  const char* uncalled() const override { return "receive it"; }
};

class MpiRecv final : public MpiMessage {
 public:
  using MpiMessage::MpiMessage;

 private:
  void post() override;
  void take(const MpiHeader& header, MpiPayload payload) override;
  const char* uncalled() const override { return "send it"; }
};

}  // namespace weft
