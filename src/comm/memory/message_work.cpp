// SPDX-License-Identifier: Apache-2.0
#include "src/comm/memory/message_work.h"

#include <algorithm>

#include "src/comm/read_collective.h"

namespace weft {

MessageWork::MessageWork(MemoryTransport& transport, const Collective& call)
    : PendingWork(transport.group(), transport.rank(), kMessage | transport.next_message()),
      transport_(transport),
      other_(call.root),
      tag_(call.tag),
      piece_(call.pieces[0]),
      count_(call.pieces[0].counts[0]),
      kind_(call.kind),
      keep_(transport.shared_from_this()) {
  record_message(call, transport.counters());
}

std::string MessageWork::words() const {
  Piece piece = piece_;
  piece.counts = {&count_, 1};
  Collective call{.kind = kind_, .root = other_, .tag = tag_};
  call.pieces = {&piece, 1};
  return message_in_words(call);
}

SendWork::SendWork(MemoryTransport& transport, const Collective& call)
    : MessageWork(transport, call),
      showing_(group(), rank(), 0),
      order_(++transport.sent_to(other_).begun) {
  post();
}

/// Returns false while earlier messages occupy all the places.
bool SendWork::post() {
  uint64_t& posted = transport_.sent_to(other_).posted;
  if (posted + 1 != order_) return false;
  const std::span<Letter> places = group().letters(rank(), other_);
  const auto free = std::find_if(places.begin(), places.end(), [](const Letter& letter) {
    return letter.state() == Letter::kFree;
  });
  if (free == places.end()) return false;
  letter_ = &*free;
  letter_->data =
      showing_.visible(piece_.send, static_cast<size_t>(count_) * size_of(piece_.dtype));
  letter_->count = count_;
  letter_->tag = tag_;
  letter_->dtype = piece_.dtype;
  letter_->stage.store(order_ * 4 + Letter::kPosted, std::memory_order_release);
  posted = order_;
  return true;
}

bool SendWork::advance() {
  if (!letter_ && !post()) return false;
  if (letter_->state() != Letter::kReceived) return false;
  letter_->stage.store(Letter::kFree, std::memory_order_release);
  return true;
}

std::vector<int> SendWork::missing() const {
  if (letter_ && letter_->state() == Letter::kReceived) return {};
  return {other_};
}

void SendWork::retreat() noexcept {
  if (!letter_) return;
  uint64_t posted = order_ * 4 + Letter::kPosted;
  if (letter_->stage.compare_exchange_strong(posted, Letter::kFree, std::memory_order_acq_rel)) {
    return;
  }
  // Once taken, the receiver is copying; it finishes or fails.
  wait_while(other_, [&] { return letter_->state() == Letter::kTaken; });
}

RecvWork::RecvWork(MemoryTransport& transport, const Collective& call)
    : MessageWork(transport, call) {
  transport_.expected().push_back({sequence(), other_, tag_});
}

/// Messages are received in the order of the calls, whichever of them is waited for.
bool RecvWork::is_next() const {
  const auto& expected = transport_.expected();
  const auto first = std::find_if(expected.begin(), expected.end(), [&](const auto& message) {
    return message.from == other_ && message.tag == tag_;
  });
  return first == expected.end() || first->number == sequence();
}

void RecvWork::forget() {
  std::erase_if(transport_.expected(),
                [&](const auto& message) { return message.number == sequence(); });
}

bool RecvWork::advance() {
  if (!is_next()) return false;
  Letter* letter = take_letter(group().letters(other_, rank()), tag_);
  if (!letter) return false;
  forget();
  const int64_t sent = letter->count;
  const DType dtype = letter->dtype;
  const bool fits = sent == count_ && dtype == piece_.dtype;
  if (fits) copy_elements(piece_, piece_.recv, letter->data, count_);
  const uint64_t taken = letter->stage.load(std::memory_order_relaxed);
  letter->stage.store(taken - Letter::kTaken + Letter::kReceived, std::memory_order_release);
  if (!fits) fail_message(other_, dtype, sent);
  received(count_ * static_cast<int64_t>(size_of(piece_.dtype)));
  return true;
}

}  // namespace weft
