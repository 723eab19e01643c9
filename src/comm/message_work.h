// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/pending.h"
#include "src/comm/threads.h"

namespace weft {

/// One end of a message between two threads: the receiver copies from the sender's memory.
class MessageWork : public PendingWork {
 public:
  MessageWork(ThreadsTransport& transport, const Collective& call);

 protected:
  std::string words() const final;
  std::string title() const final;

  ThreadsTransport& transport_;
  const int other_;
  const int tag_;
  const Piece piece_;
  const int64_t count_;

 private:
  const CollectiveKind kind_;
  const std::shared_ptr<Transport> keep_;
};

class SendWork final : public MessageWork {
 public:
  SendWork(ThreadsTransport& transport, const Collective& call);

 private:
  bool advance() override { return letter_.received.load(std::memory_order_acquire); }
  std::vector<int> missing() const override;
  const char* missed(int) const override { return "receive it"; }
  void retreat() noexcept override;

  Letter letter_;
};

class RecvWork final : public MessageWork {
 public:
  using MessageWork::MessageWork;

 private:
  bool advance() override;
  std::vector<int> missing() const override { return {other_}; }
  const char* missed(int) const override { return "send it"; }
  void retreat() noexcept override {}

  uint64_t changes_ = 0;
};

}  // namespace weft
