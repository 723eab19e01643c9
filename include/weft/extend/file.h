// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "weft/export.h"

namespace weft {

/// Opens on /dev/null those of the descriptors 0 to 2 (stdin, stdout, stderr) that are closed. A
/// file that is opened later gets a higher number, so that no printed text is written into it: call
/// it before a file is opened for writing, which may be long after the program has closed them.
/// `run_ranks`, `connect`, `launch` and whatever in weft writes files call it.
WEFT_API void open_standard_descriptors() noexcept;

/// Moves a descriptor that the system has just returned to the first free number from 3 on, closed
/// on exec, in case another thread closes stdin, stdout or stderr meanwhile. Returns other
/// descriptors, and negative values with their errno, as they are; -1 and errno when no number is
/// left.
WEFT_API int above_standard(int descriptor) noexcept;

/// Owns a descriptor: closes it at its end. -1: none.
class WEFT_API OwnedDescriptor {
 public:
  explicit OwnedDescriptor(int descriptor = -1) : descriptor_(descriptor) {}
  OwnedDescriptor(OwnedDescriptor&& other) noexcept : descriptor_(other.release()) {}
  OwnedDescriptor& operator=(OwnedDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~OwnedDescriptor() { close(); }
  int get() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }
  void close();

 private:
  int descriptor_;
};

/// Opens a file: above the standard descriptors, closed on exec, no terminal; a file that is made
/// has that mode. Gives -1 and errno when the system refuses.
WEFT_API OwnedDescriptor opened_descriptor(const std::string& path, int flags,
                                           unsigned mode = 0666);

/// A regular file open for reading. A value handle; several threads may read at once.
class WEFT_API File {
 public:
  /// Opens `path`. std::invalid_argument names `what` (who asks, the start of each error) and the
  /// path when it does not exist, may not be read, or is a directory, a pipe or a device;
  /// std::runtime_error when the system has no descriptor left or fails.
  File(const std::string& what, const std::string& path);

  const std::string& path() const;
  /// Bytes, when it was opened.
  int64_t size() const;
  /// The numbers of its device and of its inode: another file of the same path has others.
  std::pair<uint64_t, uint64_t> identity() const;
  /// Fills `into` with the bytes from `offset` on. std::runtime_error names the file when it has
  /// become shorter or cannot be read.
  void read(int64_t offset, std::span<std::byte> into) const;
  /// Returns `bytes` bytes from `offset` on, or all.
  std::string text(int64_t offset, int64_t bytes) const;
  std::string text() const { return text(0, size()); }
  /// Bytes that `read` has read.
  int64_t bytes_read() const;

 private:
  struct Body;
  std::shared_ptr<Body> body_;
};

/// The bytes of a file. std::invalid_argument also when it has more than `most`.
WEFT_API std::string read_file(const std::string& what, const std::string& path,
                               int64_t most = std::numeric_limits<int64_t>::max());

/// Checks that `text` is one JSON object in UTF-8, at most 32 levels deep, without a key twice in
/// one object and without zero bytes. std::invalid_argument "<what>: <source>: ..." names the
/// place.
WEFT_API void check_json(const std::string& what, const std::string& source, std::string_view text);

/// The text of a JSON file, checked as above. std::invalid_argument also when `path` is no regular
/// file, is empty or has more than `max_bytes`.
WEFT_API std::string read_json(const std::string& what, const std::string& path,
                               int64_t max_bytes = int64_t{64} << 20);

/// A file that is written from its start or from its end on, without a buffer. Every error names
/// `what` (the caller or its flag), the path, the call and the reason.
class WEFT_API OutputFile : NotCopied {
 public:
  /// `replace_own`: a new file is readable by the user only, and no link is followed.
  enum class Mode { replace, append, replace_own };

  /// Opens `path`, or makes it. std::invalid_argument when it cannot be written,
  /// std::runtime_error when the system has no descriptor or space left, or fails.
  OutputFile(std::string what, std::string path, Mode mode);

  /// Writes all of it; std::runtime_error when that fails.
  void write(std::string_view text);
  /// The last call; std::runtime_error when the system reports that something was not written.
  void close();

 private:
  std::string what_, path_;
  /// Closed without a check where `close` was not called.
  OwnedDescriptor descriptor_;
};

}  // namespace weft
