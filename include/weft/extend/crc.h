// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace weft {

/// Polynomials of CRC-32, bits reversed: that of zip files, and Castagnoli's.
inline constexpr uint32_t kZipPolynomial = 0xedb88320, kCastagnoli = 0x82f63b78;

/// The CRC-32 of bytes that follow others whose CRC-32 is `before`.
template <uint32_t kPolynomial>
uint32_t crc32_of(std::span<const std::byte> bytes, uint32_t before = 0) {
  static constexpr std::array<uint32_t, 256> kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? kPolynomial : 0);
      table[i] = value;
    }
    return table;
  }();
  uint32_t crc = ~before;
  for (const std::byte byte : bytes) {
    crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  }
  return ~crc;
}

}  // namespace weft
