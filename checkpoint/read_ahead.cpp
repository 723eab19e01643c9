// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/read_ahead.h"

#include <system_error>

namespace weft {

ReadAhead::ReadAhead(const File& file, std::vector<Piece> pieces)
    : reader_(file), pieces_(std::move(pieces)) {
  if (pieces_.size() < 2) return;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    // No thread is to be had: each piece is read when it is asked for.
  }
}

ReadAhead::~ReadAhead() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::span<const std::byte> ReadAhead::read(size_t piece) {
  return reader_.read(pieces_[piece].offset, pieces_[piece].bytes, buffers_[piece % kBuffers]);
}

void ReadAhead::run() {
  for (size_t piece = 0; piece < pieces_.size(); ++piece) {
    {
      std::unique_lock lock(mutex_);
      // The buffer of the piece that was asked for last is in use.
      changed_.wait(lock, [&] { return stops_ || piece < taken_ + kBuffers - 1; });
      if (stops_) return;
    }
    std::exception_ptr error;
    try {
      read_[piece % kBuffers] = read(piece);
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    error_ = error;
    if (!error) ++ready_;
    changed_.notify_all();
    if (error) return;
  }
}

std::span<const std::byte> ReadAhead::next() {
  const size_t piece = taken_;
  if (!thread_.joinable()) {
    ++taken_;
    return read(piece);
  }
  std::unique_lock lock(mutex_);
  ++taken_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return ready_ > piece || error_; });
  if (ready_ <= piece) std::rethrow_exception(error_);
  return read_[piece % kBuffers];
}

}  // namespace weft
