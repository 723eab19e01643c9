// SPDX-License-Identifier: Apache-2.0
#include "data/rows/order.h"

#include <bit>

namespace weft::rows {

// SplitMix64's finaliser (Steele, Lea, Flood 2014): every bit of the result depends on every one
// of x.
uint64_t scrambled(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

int64_t permuted(int64_t index, int64_t count, uint64_t key) {
  // A Feistel network permutes [0, 4^half); walking its cycle until it is back below `count`, which
  // takes fewer than four steps on average, permutes [0, count).
  const auto width = std::bit_width(static_cast<uint64_t>(count - 1) | 1);
  const auto half = (static_cast<uint64_t>(width) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t next = left ^ (scrambled(scrambled(key + round) ^ right) & mask);
      left = right;
      right = next;
    }
    value = left << half | right;
  } while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

}  // namespace weft::rows
