// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft::s3 {

using Digest = std::array<uint8_t, 32>;

/// FIPS 180-4.
Digest sha256(std::span<const std::byte> bytes);
Digest sha256(std::string_view text);
/// RFC 2104, with SHA-256.
Digest hmac(std::string_view key, std::string_view text);
/// Lower-case hexadecimal digits.
std::string hex_of(const Digest& digest);
/// The bytes of a digest, as a key.
inline std::string_view text_of(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace weft::s3
