// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "weft/dtype.h"

namespace weft {

/// One place for a message from one rank to another, where both see it: the sender posts, the
/// receiver takes it, copies from the sender's memory and gives it back, the sender frees it.
/// Zeros are a free place.
struct alignas(64) Letter {
  enum State : uint64_t { kFree, kPosted, kTaken, kReceived };
  /// The message's number between the two ranks, times 4, and the state.
  std::atomic<uint64_t> stage{0};
  const void* data = nullptr;
  int64_t count = 0;
  int32_t tag = 0;
  DType dtype = DType::f32;

  State state() const { return static_cast<State>(stage.load(std::memory_order_acquire) % 4); }
};

/// Messages under way from one rank to another, at most so many.
inline constexpr int kLetters = 16;

/// A letter, and its stage when it was seen.
struct SeenLetter {
  Letter* letter = nullptr;
  uint64_t stage = UINT64_MAX;
};

/// The earliest posted letter with that tag among those seen on one way through the places.
inline SeenLetter earliest_seen(std::span<Letter> letters, int tag) {
  SeenLetter first;
  for (Letter& letter : letters) {
    const uint64_t stage = letter.stage.load(std::memory_order_acquire);
    if (stage % 4 != Letter::kPosted || letter.tag != tag || stage >= first.stage) continue;
    first = {&letter, stage};
  }
  return first;
}

/// The earliest posted letter with that tag, now taken; null when there is none.
inline Letter* take_letter(std::span<Letter> letters, int tag) {
  if (!earliest_seen(letters, tag).letter) return nullptr;
  // An earlier one may have come to a place that had been passed. Who has seen a letter sees all
  // that were posted before it.
  SeenLetter first = earliest_seen(letters, tag);
  if (!first.letter) return nullptr;
  // Its sender may take it back.
  const uint64_t taken = first.stage - Letter::kPosted + Letter::kTaken;
  return first.letter->stage.compare_exchange_strong(first.stage, taken, std::memory_order_acq_rel)
             ? first.letter
             : nullptr;
}

}  // namespace weft
