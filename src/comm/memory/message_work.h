// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/memory/memory_transport.h"
#include "src/comm/memory/publication.h"

namespace weft {

/// One end of a message between two ranks that see each other's memory: the receiver copies from
/// the sender's memory.
class MessageWork : public PendingWork {
 public:
  MessageWork(MemoryTransport& transport, const Collective& call);

 protected:
  std::string words() const final { return message_in_words(call_); }

  MemoryTransport& transport_;
  Collective call_;
  Piece piece_;
  const int64_t count_;
  const int other_;

 private:
  const std::shared_ptr<Transport> keep_;
};

class SendWork final : public MessageWork {
 public:
  SendWork(MemoryTransport& transport, const Collective& call);

 private:
  bool advance() override;
  bool post();
  std::vector<int> missing() const override;
  const char* missed(int) const override { return "receive it"; }
  void retreat() noexcept override;

  Publication publication_;
  /// The number of this message among those to the same rank, which are posted in this order.
  const uint64_t order_;
  /// Null while no place is free.
  PostedMessage* posted_ = nullptr;
};

class RecvWork final : public MessageWork {
 public:
  RecvWork(MemoryTransport& transport, const Collective& call);
  ~RecvWork() override { forget(); }

 private:
  bool advance() override;
  bool is_next() const;
  void forget();
  std::vector<int> missing() const override { return {other_}; }
  const char* missed(int) const override { return "send it"; }
  void retreat() noexcept override { forget(); }
};

}  // namespace weft
