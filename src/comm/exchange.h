// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "weft/block.h"

namespace weft {

/// Implements what a rank of an exchange does once all ranks have published their blocks.
class ExchangeReader {
 public:
  virtual ~ExchangeReader() = default;
  /// The number of rounds, each of which runs all phases; called once, before the first.
  virtual int rounds(std::span<const void* const>) { return 1; }
  /// Reads what the ranks have published for this phase and returns the bytes that came from other
  /// ranks. `shown[r]` points to the first of rank r's `Exchange::blocks`. Called once a phase, in
  /// order; phase p begins when all ranks have ended phase p - 1. A null pointer stands for a rank
  /// that does not exist (a fake world): its bytes are counted, not read. May throw, which aborts
  /// the world; must not communicate.
  virtual int64_t read(int phase, std::span<const void* const> shown) = 0;
};

/// The most phases of an exchange.
inline constexpr int kMaxPhases = 6;

/// One rank's part in an exchange.
struct Exchange {
  /// The published blocks, one a phase; the block of phase p holds its elements once this rank has
  /// ended phase p - 1. Valid until the exchange has ended.
  std::span<const MemoryBlock> blocks = {};
  /// A hash that must be equal on all ranks; otherwise the exchange fails on all of them.
  uint64_t content = 0;
  /// A description of the call for errors ("redistribute(f32, [8, 4], S(0) -> R)"), of which the
  /// first 80 characters are kept.
  std::string_view words = {};

  /// 1 to kMaxPhases.
  int phases() const { return static_cast<int>(blocks.size()); }
};

}  // namespace weft
