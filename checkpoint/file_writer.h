// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/blocks.h"
#include "checkpoint/manifest.h"
#include "weft/export.h"
#include "weft/extend/file.h"
#include "weft/extend/store.h"

namespace weft {

/// Makes the directory `path` (its parent must be there) and lets it survive a crash; one that is
/// there is kept. std::runtime_error naming the path otherwise.
void make_directory(const std::string& path);
/// Makes those above it that are missing too. std::invalid_argument where the path is at fault: it
/// leads nowhere, is not a directory, or may not be written.
void make_directories(const std::string& path);
/// Gives a file its name, unless something else has that: then, or when it fails,
/// std::runtime_error naming both. On a file system with neither RENAME_NOREPLACE nor hard links it
/// looks first and then renames, which would replace a file that appears in between.
void rename_to_new(const std::string& from, const std::string& to);
/// Renames an empty file as a save does: what a file system cannot do is found before the first
/// step.
void check_can_rename(const std::string& directory);
/// Lets the entries of a directory survive a crash.
void sync_directory(const std::string& path);

/// A file that is written at any place; closed when it goes. Errors are std::runtime_error
/// "<what>: ..." with call, file and reason.
class WrittenFile : NotCopied {
 public:
  /// Bypasses the page cache if `past_cache`, where the file system supports it.
  WrittenFile(std::string what, std::string path, int flags, bool past_cache = false);

  /// Allocates the first `bytes` bytes; false, with errno, when the system cannot.
  bool reserve(int64_t bytes) const;
  void write(int64_t offset, std::span<const std::byte> bytes);
  void use_cache();
  void sync() const;

 private:
  [[noreturn]] void fail_file(const char* call) const;

  std::string what_, path_;
  OwnedDescriptor descriptor_;
  bool is_past_cache_;
};

/// A file or an object of `head` + `bytes` bytes that appears, whole and durable, when it is
/// finished, or not at all. What exists is never overwritten: std::invalid_argument for a file that
/// exists. Each other error is a std::runtime_error with call, file and reason.
std::unique_ptr<StoreWriter> new_file(const std::string& path, int64_t head, int64_t bytes);

/// Writes a rank's file of a save; see `new_file`.
class FileWriter : NotCopied {
 public:
  /// Refers to `files`.
  FileWriter(const std::string& directory, const RankFiles& files, int rank);

  /// The data that follow, whole elements.
  void write(std::span<const std::byte> bytes);
  /// The number of elements so far that are NaN or infinite.
  const NonFinite& non_finite() const { return non_finite_; }
  /// Writes the header. No data may be written afterwards.
  void finish();

 private:
  void write_buffered();
  void count_non_finite(std::span<const std::byte> bytes);

  const RankFiles& files_;
  const int rank_;
  std::unique_ptr<StoreWriter> file_;
  /// Bytes in the buffer.
  size_t buffered_ = 0;
  BlockBuffer buffer_;
  BlockHashes hashes_;
  NonFinite non_finite_;
  /// The tensors of the file, the one whose elements are counted next, and the bytes before those.
  const std::vector<RankFiles::Entry> entries_;
  size_t counted_entry_ = 0;
  int64_t counted_ = 0;
};

}  // namespace weft
