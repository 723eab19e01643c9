// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "checkpoint/block_buffer.h"

namespace weft {

/// Reads pieces of a file in a thread of its own, some ahead of who uses them: while one is checked
/// and copied, the disk is at the next ones.
class ReadAhead {
 public:
  /// At most a block.
  struct Piece {
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  ReadAhead(const File& file, std::vector<Piece> pieces);
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead();

  /// The bytes of the next piece, until the next call. Errors are those of File::read.
  std::span<const std::byte> next();

 private:
  static constexpr size_t kBuffers = 3;

  void run();
  std::span<const std::byte> read(size_t piece);

  BlockReader reader_;
  const std::vector<Piece> pieces_;
  std::array<BlockBuffer, kBuffers> buffers_;
  std::array<std::span<const std::byte>, kBuffers> read_;
  std::mutex mutex_;
  std::condition_variable changed_;
  /// Pieces read, and those asked for, the last of which is in use.
  size_t ready_ = 0;
  size_t taken_ = 0;
  bool stops_ = false;
  /// Of the piece `ready_`.
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace weft
