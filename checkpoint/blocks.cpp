// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/blocks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

// Compiled into this file, so that the hash uses the vectors of the processor we compile for.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace weft {

struct BlockHashes::Stream {
  alignas(64) XXH3_state_t state;
};

BlockHashes::BlockHashes() : stream_(std::make_shared<Stream>()) {
  XXH3_64bits_reset(&stream_->state);
}

void BlockHashes::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto room = static_cast<size_t>(kBlockBytes - in_block_);
    const auto piece = bytes.first(std::min(room, bytes.size()));
    XXH3_64bits_update(&stream_->state, piece.data(), piece.size());
    in_block_ += static_cast<int64_t>(piece.size());
    bytes = bytes.subspan(piece.size());
    if (in_block_ < kBlockBytes) continue;
    hashes_.push_back(XXH3_64bits_digest(&stream_->state));
    XXH3_64bits_reset(&stream_->state);
    in_block_ = 0;
  }
}

const std::vector<uint64_t>& BlockHashes::finish() {
  if (in_block_ > 0) hashes_.push_back(XXH3_64bits_digest(&stream_->state));
  in_block_ = 0;
  return hashes_;
}

std::string hex_of(std::span<const uint64_t> hashes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(hashes.size() * 16);
  for (const uint64_t hash : hashes) {
    for (int shift = 60; shift >= 0; shift -= 4) text += digits[hash >> shift & 15];
  }
  return text;
}

bool parse_hex(const std::string& text, std::vector<uint64_t>& hashes) {
  if (text.size() % 16 != 0) return false;
  hashes.assign(text.size() / 16, 0);
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'a' && c <= 'f')) return false;
    hashes[i / 16] = hashes[i / 16] << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return true;
}

// Each of the two calls may fail: then the file is read as any other. The mapping may not be
// touched (a file that becomes shorter would end the process by SIGBUS); mincore needs no more.
BlockReader::BlockReader(const File& file)
    : file_(file), disk_(opened_descriptor(file.path(), O_RDONLY | O_NONBLOCK | O_DIRECT)) {
  if (disk_.get() < 0 || file.size() == 0) return;
  const auto bytes = static_cast<size_t>(file.size());
  void* const start = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE, disk_.get(), 0);
  if (start != MAP_FAILED) mapped_ = static_cast<std::byte*>(start);
}

BlockReader::~BlockReader() {
  if (mapped_) ::munmap(mapped_, static_cast<size_t>(file_.size()));
}

/// Asks which pages are in the cache and touches none.
bool BlockReader::is_cached(int64_t offset, size_t bytes) const {
  const auto page = static_cast<int64_t>(BlockBuffer::kAlignment);
  const int64_t begin = offset / page * page;
  const auto length = static_cast<size_t>(offset - begin) + bytes;
  std::vector<unsigned char> resident(length / BlockBuffer::kAlignment + 1);
  if (!mapped_ || ::mincore(mapped_ + begin, length, resident.data()) != 0) return true;
  const size_t pages = (length + BlockBuffer::kAlignment - 1) / BlockBuffer::kAlignment;
  return std::all_of(resident.begin(), resident.begin() + static_cast<ptrdiff_t>(pages),
                     [](unsigned char page_is) { return (page_is & 1) != 0; });
}

bool BlockReader::read_past_cache(int64_t offset, int64_t bytes, std::byte* into) const {
  constexpr auto alignment = static_cast<int64_t>(BlockBuffer::kAlignment);
  if (disk_.get() < 0 || offset % alignment != 0) return false;
  if (is_cached(offset, static_cast<size_t>(bytes))) return false;
  const int64_t whole = (bytes + alignment - 1) / alignment * alignment;
  return ::pread(disk_.get(), into, static_cast<size_t>(whole), offset) >= bytes;
}

std::span<const std::byte> BlockReader::read(int64_t offset, int64_t bytes,
                                             const BlockBuffer& into) const {
  const std::span read(into.data(), static_cast<size_t>(bytes));
  if (!read_past_cache(offset, bytes, into.data())) file_.read(offset, read);
  return read;
}

void work_in_parallel(size_t count, int threads,
                      const std::function<void(size_t i, const BlockBuffer& buffer)>& work) {
  std::atomic<size_t> next = 0, failed = count;
  std::mutex mutex;
  std::exception_ptr error;
  // All before the first that failed have begun, and end.
  const auto run = [&](const BlockBuffer& buffer) noexcept {
    for (size_t i = next++; i < failed; i = next++) {
      try {
        work(i, buffer);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i >= failed) continue;
        failed = i;
        error = std::current_exception();
      }
    }
  };
  const std::vector<BlockBuffer> buffers(
      std::clamp<size_t>(count, 1, static_cast<size_t>(std::max(threads, 1))));
  std::vector<std::thread> others;
  others.reserve(buffers.size());
  try {
    for (size_t i = 1; i < buffers.size(); ++i) others.emplace_back(run, std::cref(buffers[i]));
  } catch (const std::exception&) {
    // No more threads are available.
  }
  run(buffers[0]);
  for (std::thread& thread : others) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace weft
