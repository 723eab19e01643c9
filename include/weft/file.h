// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "weft/export.h"

namespace weft {

/// A regular file open for reading. A value handle; several threads may read at once.
class WEFT_API File {
 public:
  /// Opens `path`. std::invalid_argument names `what` (who asks, the start of each error) and the
  /// path when nothing is there, it may not be read, or it is a directory, a pipe or a device;
  /// std::runtime_error when the system has no descriptor left or fails.
  File(const std::string& what, const std::string& path);

  const std::string& path() const;
  /// Bytes, when it was opened.
  int64_t size() const;
  /// Fills `into` with the bytes from `offset` on. std::runtime_error names the file when it has
  /// become shorter or cannot be read.
  void read(int64_t offset, std::span<std::byte> into) const;
  /// Bytes that `read` has read.
  int64_t bytes_read() const;
  /// The whole file mapped read-only, until the last handle of the mapping is gone; none if it is
  /// empty. Who shortens the file meanwhile ends the process (SIGBUS): use it where `read` is too
  /// slow.
  std::shared_ptr<const std::byte> map() const;

 private:
  struct Body;
  std::shared_ptr<Body> body_;
};

}  // namespace weft
