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
#include "weft/extend/descriptor.h"

namespace weft {

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
