// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "checkpoint/blocks.h"
#include "weft/extend/descriptor.h"

namespace weft {

// Each of the two calls may fail: then the file is read as any other. The mapping may not be
// touched (a file that becomes shorter would end the process by SIGBUS); mincore needs no more.
BlockReader::BlockReader(const File& file)
    : file_(file),
      disk_(above_standard(
          ::open(file.path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_DIRECT))) {
  if (disk_ < 0 || file.size() == 0) return;
  const auto bytes = static_cast<size_t>(file.size());
  void* const start = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE, disk_, 0);
  if (start != MAP_FAILED) mapped_ = static_cast<std::byte*>(start);
}

BlockReader::~BlockReader() {
  if (mapped_) ::munmap(mapped_, static_cast<size_t>(file_.size()));
  if (disk_ >= 0) ::close(disk_);
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
  if (disk_ < 0 || offset % alignment != 0) return false;
  if (is_cached(offset, static_cast<size_t>(bytes))) return false;
  const int64_t whole = (bytes + alignment - 1) / alignment * alignment;
  return ::pread(disk_, into, static_cast<size_t>(whole), offset) >= bytes;
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
