// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/blocks.h"
#include "checkpoint/manifest.h"
#include "weft/export.h"
#include "weft/extend/file.h"

namespace weft {

/// Counts the elements that are NaN or infinite in the data of a rank's file.
class FiniteCheck {
 public:
  /// Refers to `files`.
  FiniteCheck(const RankFiles& files, int rank)
      : manifest_(files.manifest()), entries_(files.entries(rank)) {}

  /// The data that follow: whole elements.
  void add(std::span<const std::byte> bytes);
  const NonFinite& found() const { return found_; }

 private:
  const Manifest& manifest_;
  const std::vector<RankFiles::Entry> entries_;
  size_t current_ = 0;
  int64_t at_ = 0;
  NonFinite found_;
};

/// Makes the directory `path` (its parent must be there) and lets it survive a crash; one that is
/// there is kept. std::runtime_error naming the path otherwise.
void make_directory(const std::string& path);
/// Makes those above it that are missing too. std::invalid_argument where the path is at fault: it
/// leads nowhere, is not a directory, or may not be written.
void make_directories(const std::string& path);
/// Gives a file its name, unless something has that: then, or when it fails, std::runtime_error
/// naming both.
void rename_to_new(const std::string& from, const std::string& to);
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

/// Writes a new file that is either there, whole and on the disk, or not: its bytes go to a
/// temporary name, and `finish` syncs them, gives them their name and syncs the directory. What is
/// there is never overwritten. Each error is a std::runtime_error with call, file and reason; the
/// temporary file goes then.
class FileWriter : NotCopied {
 public:
  /// std::invalid_argument when `directory` holds the name of the rank's file already. Refers to
  /// `files`.
  FileWriter(const std::string& directory, const RankFiles& files, int rank);
  ~FileWriter();

  /// The data that follow, whole elements.
  void write(std::span<const std::byte> bytes);
  /// Hashes of all blocks of the data. No data may be written afterwards.
  const std::vector<uint64_t>& block_hashes();
  const NonFinite& non_finite() const { return finite_.found(); }
  /// `header` are the bytes before the data.
  void finish(std::string_view header);

 private:
  void write_buffered();

  std::string directory_, path_, temporary_;
  /// Empty once it has its name.
  std::optional<WrittenFile> file_;
  /// Offset in the file of the buffered bytes, and their number.
  int64_t at_;
  size_t buffered_ = 0;
  BlockBuffer buffer_;
  BlockHashes hashes_;
  FiniteCheck finite_;
};

}  // namespace weft
