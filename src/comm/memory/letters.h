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
struct alignas(64) Letter {
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
inline constexpr int kLetters = 16;

/// A message place and the stage in which it was seen.
struct SeenLetter {
  Letter* letter = nullptr;
  uint64_t stage = UINT64_MAX;
};

/// Returns the earliest posted message with that tag, found in one pass over the places.
inline SeenLetter earliest_seen(std::span<Letter> letters, int tag) {
  SeenLetter first;
  for (Letter& letter : letters) {
    const uint64_t stage = letter.stage.load(std::memory_order_acquire);
    if (stage % 4 != Letter::kPosted || letter.tag != tag || stage >= first.stage) continue;
    first = {&letter, stage};
  }
  return first;
}

/// Takes the earliest posted message with that tag; null when there is none.
inline Letter* take_letter(std::span<Letter> letters, int tag) {
  if (!earliest_seen(letters, tag).letter) return nullptr;
  // An earlier message may have been posted to a place that the first pass had already visited.
  // After one message was seen, a second pass sees all that were posted before it.
  SeenLetter first = earliest_seen(letters, tag);
  if (!first.letter) return nullptr;
  // The exchange fails when the sender has withdrawn the message.
  const uint64_t taken = first.stage - Letter::kPosted + Letter::kTaken;
  return first.letter->stage.compare_exchange_strong(first.stage, taken, std::memory_order_acq_rel)
             ? first.letter
             : nullptr;
}

}  // namespace weft
