// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/extend/file.h"

namespace weft {

/// The data of a file is checked in blocks of so many bytes from its start on; the last is shorter.
inline constexpr int64_t kBlockBytes = int64_t{4} << 20;

inline int64_t blocks_in(int64_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes; }

/// The XXH3 hashes, 64 bits, of the blocks of bytes that come in pieces.
class BlockHashes : NotCopied {
 public:
  BlockHashes();

  void add(std::span<const std::byte> bytes);
  /// Ends the last block; nothing may be added after.
  const std::vector<uint64_t>& finish();

 private:
  struct Stream;
  std::shared_ptr<Stream> stream_;
  int64_t in_block_ = 0;
  std::vector<uint64_t> hashes_;
};

/// 16 hexadecimal digits each.
std::string hex_of(std::span<const uint64_t> hashes);
/// The numbers of such a text; false when it is none.
bool parse_hex(const std::string& text, std::vector<uint64_t>& hashes);

/// Memory of one block, aligned so that the disk may write to it and read from it by itself: past
/// the page cache a save or a cold load costs no copy by the kernel.
class BlockBuffer {
 public:
  static constexpr size_t kAlignment = 4096;

  std::byte* data() const { return block_->bytes; }

 private:
  struct alignas(kAlignment) Block {
    std::byte bytes[kBlockBytes];
  };
  std::unique_ptr<Block> block_ = std::make_unique_for_overwrite<Block>();
};

/// Reads pieces of a file, from the page cache or past it. Several threads may read at once.
class BlockReader : NotCopied {
 public:
  explicit BlockReader(const File& file);
  ~BlockReader();

  /// Fills `into`, which is aligned and allocated up to the next multiple of kAlignment, straight
  /// from the disk. Returns false, with `into` unspecified, when the page cache has all of it or
  /// the file system does not support it.
  bool read_past_cache(int64_t offset, int64_t bytes, std::byte* into) const;
  /// The bytes from `offset` on, at most a block, in `into`: past the cache where that can be.
  /// Errors are those of File::read.
  std::span<const std::byte> read(int64_t offset, int64_t bytes, const BlockBuffer& into) const;

 private:
  bool is_cached(int64_t offset, size_t bytes) const;

  const File& file_;
  /// Only to ask which pages are in the cache.
  std::byte* mapped_ = nullptr;
  OwnedDescriptor disk_;
};

/// Reads that are under way at once: two ranks reach a disk's 1.9 GB/s with 4 blocks in flight
/// each, 0.8 of it with 2; 8 add nothing.
inline constexpr int kReads = 4;

/// Calls `work(i, buffer)` for each i below `count`, in order, in so many threads (fewer where the
/// system has no more), each with a separate buffer: a single read leaves a disk idle, and some
/// threads check and copy data while others wait for it. After a throw no more calls begin; the
/// first exception is rethrown.
void work_in_parallel(size_t count, int threads,
                      const std::function<void(size_t i, const BlockBuffer& buffer)>& work);

}  // namespace weft
