// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace weft {

/// The data of a file is checked in blocks of so many bytes from its start on; the last is shorter.
inline constexpr int64_t kBlockBytes = int64_t{4} << 20;

inline int64_t blocks_in(int64_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes; }

/// The XXH3 hashes, 64 bits, of the blocks of bytes that come in pieces.
class BlockHashes {
 public:
  BlockHashes();
  BlockHashes(BlockHashes&&) noexcept;
  BlockHashes& operator=(BlockHashes&&) noexcept;
  ~BlockHashes();

  void add(std::span<const std::byte> bytes);
  /// Ends the last block; nothing may be added after.
  const std::vector<uint64_t>& finish();

 private:
  struct Stream;
  std::unique_ptr<Stream> stream_;
  int64_t in_block_ = 0;
  std::vector<uint64_t> hashes_;
};

/// 16 hexadecimal digits each.
std::string hex_of(std::span<const uint64_t> hashes);
/// The numbers of such a text; false when it is none.
bool parse_hex(const std::string& text, std::vector<uint64_t>& hashes);

}  // namespace weft
