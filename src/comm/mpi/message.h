// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/comm/mpi/work.h"

namespace weft {

/// One end of a point-to-point message between two processes.
class MpiMessage final : public MpiWork {
 public:
  MpiMessage(MpiTransport& transport, const Collective& call, uint64_t number);

 private:
  void post() override;
  void take(const MpiHeader& header, MpiPayload payload) override;
  void moved(uint64_t token) override;
  bool has_begun() const override { return answered_; }
  std::vector<int> awaited_ranks() const override { return {other()}; }
  const char* uncalled() const override { return sends() ? "receive it" : "send it"; }
  std::string words() const override { return message_in_words(call_); }

  bool sends() const { return call_.kind == CollectiveKind::send; }
  int other() const { return call_.root; }
  int other_of_world() const { return group().world_rank(call_.root); }
  int64_t bytes() const { return count_ * static_cast<int64_t>(size_of(piece_.dtype)); }
  bool goes_along() const { return padded(bytes()) <= kMpiShortBytes; }
  /// Transfers the data separately, under that tag.
  void stream(int tag);
  void receive_data(const MpiHeader& header, MpiPayload payload);

  Collective call_;
  Piece piece_;
  const int64_t count_;
  bool answered_ = false;
  MpiStreams streams_;
};

}  // namespace weft
