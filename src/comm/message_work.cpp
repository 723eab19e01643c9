// SPDX-License-Identifier: Apache-2.0
#include "src/comm/message_work.h"

#include <thread>

#include "src/comm/read_collective.h"

namespace weft {

MessageWork::MessageWork(ThreadsTransport& transport, const Collective& call)
    : PendingWork(transport.group(), transport.rank(), kMessage | transport.next_message()),
      transport_(transport),
      other_(call.root),
      tag_(call.tag),
      piece_(call.pieces[0]),
      count_(call.pieces[0].counts[0]),
      kind_(call.kind),
      keep_(transport.shared_from_this()) {}

std::string MessageWork::words() const {
  Piece piece = piece_;
  piece.counts = {&count_, 1};
  Collective call{.kind = kind_, .root = other_, .tag = tag_};
  call.pieces = {&piece, 1};
  return message_in_words(call);
}

std::string MessageWork::title() const {
  return concat(group().name, ": message ", number(), ": ", words());
}

SendWork::SendWork(ThreadsTransport& transport, const Collective& call)
    : MessageWork(transport, call) {
  letter_.from = rank();
  letter_.tag = tag_;
  letter_.data = piece_.send;
  letter_.count = count_;
  letter_.dtype = piece_.dtype;
  group().mailboxes[static_cast<size_t>(other_)].put(letter_);
}

std::vector<int> SendWork::missing() const {
  if (letter_.received.load(std::memory_order_acquire)) return {};
  return {other_};
}

void SendWork::retreat() noexcept {
  if (group().mailboxes[static_cast<size_t>(other_)].withdraw(letter_)) return;
  // Taken: the receiver copies now, or fails and says so.
  while (!letter_.received.load(std::memory_order_acquire)) std::this_thread::yield();
}

bool RecvWork::advance() {
  Mailbox& mailbox = group().mailboxes[static_cast<size_t>(rank())];
  const uint64_t changes = mailbox.changes();
  if (changes == changes_) return false;
  changes_ = changes;
  Letter* letter = mailbox.take(other_, tag_);
  if (!letter) return false;
  const int64_t sent = letter->count;
  const DType dtype = letter->dtype;
  const bool fits = sent == count_ && dtype == piece_.dtype;
  if (fits) copy_elements(piece_.recv, letter->data, count_, piece_.dtype);
  letter->received.store(true, std::memory_order_release);
  if (!fits) {
    fail_with(
        concat(title(), ": ", group().rank_in_words(other_), " sent (", dtype, ", [", sent, "])"),
        other_);
  }
  transport_.add_received(count_ * static_cast<int64_t>(size_of(piece_.dtype)));
  return true;
}

}  // namespace weft
