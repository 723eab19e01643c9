// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/dtype.h"
#include "weft/export.h"
#include "weft/extend/file.h"
#include "weft/extend/pattern.h"
#include "weft/safetensors.h"

namespace weft {

/// The data of a file is checked in blocks of so many bytes from its start on; the last is shorter.
inline constexpr int64_t kBlockBytes = int64_t{4} << 20;

/// A block is read or written, hashed and copied by pieces of so many bytes, which stay in the
/// cache.
inline constexpr int64_t kPieceBytes = int64_t{1} << 18;

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
  /// Used only to ask which pages are in the cache.
  std::byte* mapped_ = nullptr;
  OwnedDescriptor disk_;
};

/// Reads that are under way at once: two ranks reach a disk's 1.9 GB/s with 4 blocks in flight
/// each, 0.8 of it with 2; 8 add nothing.
inline constexpr int kReads = 4;
/// The same for an object store: a request waits about as long as its 4 MiB take.
inline constexpr int kObjectReads = 16;

/// Calls `work(i, buffer)` for each i below `count`, in order, in so many threads (fewer where the
/// system has no more), each with a separate buffer: a single read leaves a disk idle, and some
/// threads check and copy data while others wait for it. After a throw no more calls begin; the
/// first exception is rethrown.
void work_in_parallel(size_t count, int threads,
                      const std::function<void(size_t i, const BlockBuffer& buffer)>& work);

/// The contiguous runs of bytes that a box of a dense tensor consists of, in the order of memory.
class BoxRuns {
 public:
  /// `box` in the coordinates of a tensor of `shape`.
  BoxRuns(const Shape& shape, const Box& box, DType dtype) : strides_(dense_strides(shape)) {
    const auto element = static_cast<int64_t>(size_of(dtype));
    outer_ = shape.ndim();
    int64_t run = 1;
    // Dims from `outer_` on make one run: all but the first of them are whole.
    while (outer_ > 0 && run == strides_[outer_ - 1]) run *= box.shape[--outer_];
    for (int dim = 0; dim < shape.ndim(); ++dim) start_ += box.offset[dim] * strides_[dim];
    start_ *= element;
    bytes_ = run * element;
    count_ = 1;
    for (int dim = 0; dim < outer_; ++dim) {
      sizes_.push_back(box.shape[dim]);
      strides_[dim] *= element;
      count_ *= box.shape[dim];
    }
    if (run == 0) count_ = 0;
  }

  int64_t count() const { return count_; }
  /// Bytes of each.
  int64_t bytes() const { return bytes_; }
  /// Offset of a run from the tensor's first byte.
  int64_t start(int64_t run) const {
    int64_t at = start_;
    for (int dim = outer_; dim-- > 0;) {
      at += run % sizes_[dim] * strides_[dim];
      run /= sizes_[dim];
    }
    return at;
  }
  int64_t begin() const { return start_; }
  int64_t end() const { return count_ == 0 ? start_ : start(count_ - 1) + bytes_; }
  /// The first run that ends after the byte `at`; count() if none does.
  int64_t first_after(int64_t at) const {
    const auto runs = std::views::iota(int64_t{0}, count_);
    const auto ends_before = [&](int64_t run) { return start(run) + bytes_ <= at; };
    return static_cast<int64_t>(std::ranges::partition_point(runs, ends_before) - runs.begin());
  }

 private:
  Strides strides_;
  Dims sizes_;
  int outer_ = 0;
  int64_t start_ = 0, bytes_ = 0, count_ = 0;
};

/// The bytes of a dense tensor; -1 when 64 bits do not count them.
int64_t bytes_of(const Shape& shape, DType dtype);

/// The parsed JSON header of a safetensors file.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// Readers of safetensors refuse longer ones.
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;

/// The name that safetensors gives the dtype: "F32".
std::string_view safetensors_name_of(DType dtype);
/// Returns std::nullopt for a name that safetensors gives no dtype of weft.
std::optional<DType> dtype_in_safetensors(std::string_view name);

/// Parses and checks the header `text` of the file `path`, whose tensors lie in its bytes from
/// `data_start` to `file_size`. std::invalid_argument as SafetensorsFile says.
SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view text,
                                           int64_t data_start, int64_t file_size);

}  // namespace weft
