// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "weft/dtype.h"

namespace weft {

/// A place in shared memory for one message from one rank to another: the sender posts, the
/// receiver takes it, copies from the sender's memory and marks it as received, and the sender
/// frees the place. All zeros: a free place.
struct alignas(64) PostedMessage {
  enum State : uint64_t { kFree, kPosted, kTaken, kReceived };
  /// The number of the message between the two ranks, times 4, plus the state.
  std::atomic<uint64_t> stage{0};
  const void* data = nullptr;
  int64_t count = 0;
  int32_t tag = 0;
  DType dtype = DType::f32;

  State state() const { return static_cast<State>(stage.load(std::memory_order_acquire) % 4); }
};

/// The most messages that can be pending from one rank to another.
inline constexpr int kPostedMessages = 16;

/// A message place and the stage in which it was seen.
struct SeenMessage {
  PostedMessage* message = nullptr;
  uint64_t stage = UINT64_MAX;
};

/// Returns the earliest posted message with that tag, found in one pass over the places.
inline SeenMessage earliest_seen(std::span<PostedMessage> messages, int tag) {
  SeenMessage first;
  for (PostedMessage& message : messages) {
    const uint64_t stage = message.stage.load(std::memory_order_acquire);
    if (stage % 4 != PostedMessage::kPosted || message.tag != tag || stage >= first.stage) continue;
    first = {&message, stage};
  }
  return first;
}

/// Takes the earliest posted message with that tag; null when there is none.
inline PostedMessage* take_message(std::span<PostedMessage> messages, int tag) {
  if (!earliest_seen(messages, tag).message) return nullptr;
  // An earlier message may have been posted to a place that the first pass had already visited.
  // After one message was seen, a second pass sees all that were posted before it.
  SeenMessage first = earliest_seen(messages, tag);
  if (!first.message) return nullptr;
  // The exchange fails when the sender has withdrawn the message.
  const uint64_t taken = first.stage - PostedMessage::kPosted + PostedMessage::kTaken;
  return first.message->stage.compare_exchange_strong(first.stage, taken, std::memory_order_acq_rel)
             ? first.message
             : nullptr;
}

}  // namespace weft
