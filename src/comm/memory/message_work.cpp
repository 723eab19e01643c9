// SPDX-License-Identifier: Apache-2.0
#include "src/comm/memory/message_work.h"

#include <algorithm>

#include "src/comm/read_collective.h"

namespace weft {

MessageWork::MessageWork(MemoryTransport& transport, const Collective& call)
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

SendWork::SendWork(MemoryTransport& transport, const Collective& call)
    : MessageWork(transport, call),
      publication_(group(), rank(), 0),
      order_(++transport.sent_to(other_).begun) {
  post();
}

/// Returns false while earlier messages occupy all the places, and in an aborted world.
bool SendWork::post() {
  if (world().is_aborted()) return false;
  uint64_t& posted = transport_.sent_to(other_).posted;
  if (posted + 1 != order_) return false;
  const std::span<PostedMessage> places = group().posted_messages(rank(), other_);
  const auto free = std::find_if(places.begin(), places.end(), [](const PostedMessage& message) {
    return message.state() == PostedMessage::kFree;
  });
  if (free == places.end()) return false;
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

bool SendWork::advance() {
  if (!posted_ && !post()) return false;
  if (posted_->state() != PostedMessage::kReceived) return false;
  posted_->stage.store(PostedMessage::kFree, std::memory_order_release);
  return true;
}

std::vector<int> SendWork::missing() const {
  if (posted_ && posted_->state() == PostedMessage::kReceived) return {};
  return {other_};
}

void SendWork::retreat() noexcept {
  if (!posted_) return;
  uint64_t posted = order_ * 4 + PostedMessage::kPosted;
  if (posted_->stage.compare_exchange_strong(posted, PostedMessage::kFree,
                                             std::memory_order_acq_rel)) {
    return;
  }
  // Once taken, the receiver is copying; it finishes or fails.
  wait_while(other_, [&] { return posted_->state() == PostedMessage::kTaken; });
}

RecvWork::RecvWork(MemoryTransport& transport, const Collective& call)
    : MessageWork(transport, call) {
  transport_.expected().push_back({sequence(), other_, call_.tag});
}

/// Messages are received in the order of the calls, whichever of them is waited for.
bool RecvWork::is_next() const {
  const auto& expected = transport_.expected();
  const auto first = std::find_if(expected.begin(), expected.end(), [&](const auto& message) {
    return message.from == other_ && message.tag == call_.tag;
  });
  return first == expected.end() || first->number == sequence();
}

void RecvWork::forget() {
  std::erase_if(transport_.expected(),
                [&](const auto& message) { return message.number == sequence(); });
}

bool RecvWork::advance() {
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

}  // namespace weft
