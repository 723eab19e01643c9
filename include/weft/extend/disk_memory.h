// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/storage.h"

namespace weft {

class DiskFile;
struct DiskRequest;

/// The way in which padded transfers reach the disk; others pass through the page cache.
enum class DiskPath : uint8_t {
  /// Bypasses the page cache.
  direct,
  /// Uses it too: otherwise the system would first write back and then drop what it holds.
  cached,
  /// Cached if all files of the process take at most half of the memory that is available; other
  /// processes of the host are not counted, so that the cache may be too small, which costs time.
  cached_if_it_fits
};

/// Arrays that rest in a file. Each array is cut into blocks, whose xxh3 hashes are recorded when
/// they are written and checked when they are read. One rank uses it.
class WEFT_API DiskMemory : public std::enable_shared_from_this<DiskMemory>, NotCopied {
 public:
  /// Bytes of a block; the last one of an array may be shorter.
  static constexpr int64_t kBlock = int64_t{1} << 20;
  /// Each array begins at a multiple of it.
  static constexpr int64_t kAlignment = 4096;

  struct Array {
    /// Errors name the array so: "state m of parameter wq".
    std::string name;
    int64_t bytes;
  };
  /// Reserves space for arrays, which read as zeros until they are written, in the file that the
  /// calling rank has in `directory`. The file has no name, so that it ends with the process.
  /// std::invalid_argument where the directory cannot be written, std::runtime_error where it has
  /// too little space.
  static std::shared_ptr<DiskMemory> make(const std::string& directory, std::vector<Array> arrays,
                                          DiskPath path = DiskPath::direct);
  ~DiskMemory();

  /// An unbound block that stands for all arrays: layouts and versions without memory.
  const Ref<Storage>& storage() const { return storage_; }
  /// Byte of `storage` at which an array begins.
  int64_t offset(size_t array) const { return arrays_[array].offset; }
  /// All arrays read as zeros again. No transfer is under way.
  void clear();
  /// Byte at which the array after one that ends at `end` begins.
  static int64_t next(int64_t end) { return (end + kAlignment - 1) / kAlignment * kAlignment; }

  /// Bytes that are read or written; ends before its memory does.
  class WEFT_API Transfer {
   public:
    Transfer() = default;
    Transfer(Transfer&&) = default;
    Transfer& operator=(Transfer&&) = default;
    /// Waits until it has ended; std::runtime_error when the system failed, or a block that was
    /// read has another hash than when it was written.
    void wait();

   private:
    friend class DiskMemory;
    struct Moving;
    std::shared_ptr<Moving> moving_;
  };
  /// Starts to read or write `bytes` bytes from byte `offset` on: whole blocks of one array.
  /// Transfers of the same blocks must not overlap. `is_padded`: `data` is aligned to kAlignment
  /// and has memory up to a multiple of it, so that the disk may reach it past the page cache.
  Transfer read(int64_t offset, int64_t bytes, void* into, bool is_padded = false);
  Transfer write(int64_t offset, int64_t bytes, const void* from, bool is_padded = false);

 private:
  struct Placed {
    std::string name;
    int64_t offset, bytes;
    size_t first_block;
  };
  struct Block {
    bool is_written = false;
    uint64_t hash = 0;
  };
  DiskMemory(std::shared_ptr<DiskFile> file, std::vector<Array> arrays, DiskPath path);
  const Placed& array_at(int64_t offset) const;
  const Placed& checked_array(bool writes, int64_t offset, int64_t bytes) const;
  Transfer start(bool writes, int64_t offset, int64_t bytes, std::byte* data, bool is_padded);
  Block& block_at(const Placed& array, int64_t offset);
  void check_hashes(int64_t offset, int64_t bytes, const std::byte* data);
  [[noreturn]] void fail_request(const DiskRequest& request, int64_t offset) const;

  std::shared_ptr<DiskFile> file_;
  bool cached_;
  std::vector<Placed> arrays_;
  std::vector<Block> blocks_;
  /// Byte of the file at which the arrays begin.
  int64_t start_ = 0, bytes_ = 0;
  Ref<Storage> storage_;
};

/// Host memory that the disk may reach past the page cache: aligned, and padded.
class WEFT_API DiskBuffer {
 public:
  DiskBuffer() = default;
  /// `pinned`: memory from which a GPU copies.
  explicit DiskBuffer(int64_t bytes, bool pinned = false);
  const Ref<Storage>& storage() const { return storage_; }
  /// Byte of `storage` at which the aligned memory begins.
  int64_t offset() const { return offset_; }
  std::byte* data() const { return static_cast<std::byte*>(storage_->data()) + offset_; }
  /// Bytes that a buffer of `bytes` bytes allocates.
  static int64_t allocated(int64_t bytes);

 private:
  Ref<Storage> storage_;
  int64_t offset_ = 0;
};

}  // namespace weft
