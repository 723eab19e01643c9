// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/comm/collective_parts.h"
#include "src/comm/memory/memory_transport.h"

namespace weft {

/// A posted message and the stage in which it was seen.
struct SeenMessage {
  PostedMessage* message = nullptr;
  uint64_t stage = UINT64_MAX;
};

/// Returns the earliest posted message with that tag, found in one pass over the entries.
static SeenMessage earliest_seen(std::span<PostedMessage> messages, int tag) {
  SeenMessage first;
  for (PostedMessage& message : messages) {
    const uint64_t stage = message.stage.load(std::memory_order_acquire);
    if (stage % 4 != PostedMessage::kPosted || message.tag != tag || stage >= first.stage) continue;
    first = {&message, stage};
  }
  return first;
}

PostedMessage* take_message(std::span<PostedMessage> messages, int tag) {
  if (!earliest_seen(messages, tag).message) return nullptr;
  // An earlier message may have been posted to an entry that the first pass had already visited.
  // After one message was seen, a second pass sees all that were posted before it.
  SeenMessage first = earliest_seen(messages, tag);
  if (!first.message) return nullptr;
  // The exchange fails when the sender has withdrawn the message.
  const uint64_t taken = first.stage - PostedMessage::kPosted + PostedMessage::kTaken;
  return first.message->stage.compare_exchange_strong(first.stage, taken, std::memory_order_acq_rel)
             ? first.message
             : nullptr;
}

/// One end of a message between two ranks that see each other's memory: the receiver copies from
/// the sender's memory.
class MessageWork : public PendingWork {
 public:
  MessageWork(MemoryTransport& transport, const Collective& call)
      : PendingWork(transport.group(), transport.rank(), kMessage | transport.next_message()),
        transport_(transport),
        call_(call),
        piece_(call.pieces[0]),
        count_(call.pieces[0].counts[0]),
        other_(call.root),
        keep_(transport.shared_from_this()) {
    piece_.counts = {&count_, 1};
    call_.pieces = {&piece_, 1};
    record(call_, transport.counters());
  }

 protected:
  std::string words() const final { return weft::in_words(signature_of(call_)); }

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
  SendWork(MemoryTransport& transport, const Collective& call)
      : MessageWork(transport, call),
        publication_(group(), rank(), 0),
        order_(++transport.sent_to(other_).begun) {
    post();
  }

 private:
  bool advance() override {
    if (!posted_ && !post()) return false;
    if (posted_->state() != PostedMessage::kReceived) return false;
    posted_->stage.store(PostedMessage::kFree, std::memory_order_release);
    return true;
  }

  /// Returns false while earlier messages occupy all the entries, and in an aborted world.
  bool post() {
    if (world().is_aborted()) return false;
    uint64_t& posted = transport_.sent_to(other_).posted;
    if (posted + 1 != order_) return false;
    const std::span<PostedMessage> entries = group().posted_messages(rank(), other_);
    const auto free = std::find_if(
        entries.begin(), entries.end(),
        [](const PostedMessage& message) { return message.state() == PostedMessage::kFree; });
    if (free == entries.end()) return false;
    posted_ = &*free;
    posted_->data =
        publication_.visible(piece_.send, static_cast<size_t>(count_) * size_of(piece_.dtype));
    posted_->count = count_;
    posted_->tag = call_.tag;
    posted_->dtype = piece_.dtype;
    posted_->stage.store(order_ * 4 + PostedMessage::kPosted, std::memory_order_release);
    posted = order_;
    return true;
  }

  std::vector<int> missing() const override {
    if (posted_ && posted_->state() == PostedMessage::kReceived) return {};
    return {other_};
  }
  const char* missed(int) const override { return "receive it"; }

  void await_release() noexcept override {
    if (!posted_) return;
    uint64_t posted = order_ * 4 + PostedMessage::kPosted;
    if (posted_->stage.compare_exchange_strong(posted, PostedMessage::kFree,
                                               std::memory_order_acq_rel)) {
      return;
    }
    // Once taken, the receiver is copying; it finishes or fails.
    wait_while(other_, [&] { return posted_->state() == PostedMessage::kTaken; });
  }

  Publication publication_;
  /// The number of this message among those to the same rank, which are posted in this order.
  const uint64_t order_;
  /// Null while no entry is free.
  PostedMessage* posted_ = nullptr;
};

class RecvWork final : public MessageWork {
 public:
  RecvWork(MemoryTransport& transport, const Collective& call) : MessageWork(transport, call) {
    transport_.expected().push_back({sequence(), other_, call_.tag});
  }
  ~RecvWork() override { forget(); }

 private:
  bool advance() override {
    // A message that was not received before the failure is received on no rank.
    if (world().is_aborted() || !is_next()) return false;
    PostedMessage* message = take_message(group().posted_messages(other_, rank()), call_.tag);
    if (!message) return false;
    forget();
    const int64_t sent = message->count;
    const DType dtype = message->dtype;
    const bool fits = sent == count_ && dtype == piece_.dtype;
    if (fits) copy_elements(piece_, piece_.recv, message->data, count_);
    const uint64_t taken = message->stage.load(std::memory_order_relaxed);
    message->stage.store(taken - PostedMessage::kTaken + PostedMessage::kReceived,
                         std::memory_order_release);
    if (!fits) fail_message(other_, dtype, sent);
    received(count_ * static_cast<int64_t>(size_of(piece_.dtype)));
    return true;
  }

  /// Messages are received in the order of the calls, whichever of them is waited for.
  bool is_next() const {
    const auto& expected = transport_.expected();
    const auto first = std::find_if(expected.begin(), expected.end(), [&](const auto& message) {
      return message.from == other_ && message.tag == call_.tag;
    });
    return first == expected.end() || first->number == sequence();
  }
  void forget() {
    std::erase_if(transport_.expected(),
                  [&](const auto& message) { return message.number == sequence(); });
  }

  std::vector<int> missing() const override { return {other_}; }
  const char* missed(int) const override { return "send it"; }
  void await_release() noexcept override { forget(); }
};

Work start_message(MemoryTransport& transport, const Collective& call) {
  if (call.kind == CollectiveKind::send) return Work(std::make_unique<SendWork>(transport, call));
  return Work(std::make_unique<RecvWork>(transport, call));
}

}  // namespace weft
