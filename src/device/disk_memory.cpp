// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/disk_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>

#include "src/device/disk_file.h"
#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

/// The arrays on disk of all ranks, by the block that stands for them.
struct DiskMemories {
  std::mutex mutex;
  std::unordered_map<const Storage*, std::weak_ptr<DiskMemory>> all;
};

static DiskMemories& disk_memories() {
  // Never destroyed: arrays may end after it otherwise.
  static auto* memories = new DiskMemories;
  return *memories;
}

static int64_t aligned(int64_t bytes) { return DiskMemory::next(bytes); }

/// Requests of at most 4 blocks keep several under way.
static constexpr int64_t kMostOfRequest = 4 * DiskMemory::kBlock;

std::shared_ptr<DiskMemory> DiskMemory::make(const std::string& directory,
                                             std::vector<Array> arrays, DiskPath path) {
  std::shared_ptr<DiskMemory> memory(
      new DiskMemory(DiskFile::in(directory), std::move(arrays), path));
  const std::lock_guard lock(disk_memories().mutex);
  disk_memories().all[memory->storage_.get()] = memory;
  return memory;
}

std::shared_ptr<DiskMemory> DiskMemory::behind(const Storage& storage) {
  if (!storage.is_bindable()) return {};
  const std::lock_guard lock(disk_memories().mutex);
  const auto found = disk_memories().all.find(&storage);
  return found == disk_memories().all.end() ? nullptr : found->second.lock();
}

DiskMemory::DiskMemory(std::shared_ptr<DiskFile> file, std::vector<Array> arrays, DiskPath path)
    : file_(std::move(file)), cached_(path == DiskPath::cached) {
  size_t blocks = 0;
  for (Array& array : arrays) {
    arrays_.push_back({std::move(array.name), bytes_, array.bytes, blocks});
    blocks += static_cast<size_t>((array.bytes + kBlock - 1) / kBlock);
    bytes_ += aligned(array.bytes);
  }
  // First, because the hashes of arrays that do not fit may not fit into memory either.
  start_ = file_->reserve(bytes_);
  if (path == DiskPath::cached_if_it_fits) cached_ = DiskFile::fit_page_cache();
  try {
    blocks_.resize(blocks);
    const std::string name = arrays_.empty() ? "nothing" : arrays_[0].name;
    storage_ = Storage::unbound(static_cast<size_t>(bytes_), cpu,
                                concat(name, ", which rests in ", file_->title()));
  } catch (...) {
    file_->release(start_, bytes_);
    throw;
  }
}

DiskMemory::~DiskMemory() {
  {
    const std::lock_guard lock(disk_memories().mutex);
    disk_memories().all.erase(storage_.get());
  }
  file_->release(start_, bytes_);
}

void DiskMemory::clear() { std::fill(blocks_.begin(), blocks_.end(), Block()); }

const DiskMemory::Placed& DiskMemory::array_at(int64_t offset) const {
  const auto after =
      std::upper_bound(arrays_.begin(), arrays_.end(), offset,
                       [](int64_t at, const Placed& array) { return at < array.offset; });
  return *(after - 1);
}

/// The array of these bytes; throws unless they are whole blocks of it.
const DiskMemory::Placed& DiskMemory::checked_array(bool writes, int64_t offset,
                                                    int64_t bytes) const {
  const Placed& array = array_at(offset);
  const int64_t from = offset - array.offset, end = from + bytes;
  if (from % kBlock != 0 || end > array.bytes || (end % kBlock != 0 && end != array.bytes)) {
    fail("offload: bytes ", from, " to ", end, " of ", array.name, " are ",
         writes ? "written" : "read", ", expected whole blocks of ", kBlock, " of its ",
         array.bytes);
  }
  return array;
}

DiskMemory::Block& DiskMemory::block_at(const Placed& array, int64_t offset) {
  return blocks_[array.first_block + static_cast<size_t>((offset - array.offset) / kBlock)];
}

/// Calls `visit` with the offset and the number of bytes of each block.
template <class Visit> static void for_blocks(int64_t offset, int64_t bytes, const Visit& visit) {
  for (int64_t at = 0; at < bytes; at += DiskMemory::kBlock) {
    visit(offset + at, std::min(DiskMemory::kBlock, bytes - at));
  }
}

DiskMemory::Transfer DiskMemory::read(int64_t offset, int64_t bytes, void* into, bool is_padded) {
  return start(false, offset, bytes, static_cast<std::byte*>(into), is_padded);
}

DiskMemory::Transfer DiskMemory::write(int64_t offset, int64_t bytes, const void* from,
                                       bool is_padded) {
  if (bytes == 0) return {};
  auto* data = static_cast<std::byte*>(const_cast<void*>(from));
  const Placed& array = checked_array(true, offset, bytes);
  for_blocks(offset, bytes, [&](int64_t at, int64_t size) {
    block_at(array, at) = {true, xxh3_of(std::span(data + (at - offset), size))};
  });
  return start(true, offset, bytes, data, is_padded);
}

DiskMemory::Transfer DiskMemory::start(bool writes, int64_t offset, int64_t bytes, std::byte* data,
                                       bool is_padded) {
  Transfer transfer;
  if (bytes == 0) return transfer;
  const Placed& array = checked_array(writes, offset, bytes);
  transfer.memory_ = shared_from_this();
  transfer.offset_ = offset;
  transfer.bytes_ = bytes;
  transfer.data_ = data;
  const bool direct = is_padded && !cached_;
  const auto add = [&](int64_t at, int64_t size) {
    // Only the last request of an array is padded.
    const int64_t moved = direct ? aligned(size) : size;
    transfer.requests_.push_back(std::unique_ptr<DiskRequest>(
        new DiskRequest{direct ? file_->direct() : file_->buffered(), writes, start_ + at,
                        data + (at - offset), moved}));
    file_->queue().start(*transfer.requests_.back());
  };
  int64_t begin = offset;
  const auto add_before = [&](int64_t stop) {
    while (begin < stop) {
      const int64_t size = std::min(kMostOfRequest, stop - begin);
      add(begin, size);
      begin += size;
    }
  };
  for_blocks(offset, bytes, [&](int64_t at, int64_t size) {
    if (block_at(array, at).is_written) return;
    add_before(at);
    std::memset(data + (at - offset), 0, static_cast<size_t>(size));
    begin = at + size;
  });
  add_before(offset + bytes);
  return transfer;
}

void DiskMemory::check_hashes(int64_t offset, int64_t bytes, const std::byte* data) {
  const Placed& array = array_at(offset);
  for_blocks(offset, bytes, [&](int64_t at, int64_t size) {
    const Block& block = block_at(array, at);
    if (!block.is_written) return;
    const uint64_t found = xxh3_of(std::span(data + (at - offset), static_cast<size_t>(size)));
    if (found == block.hash) return;
    fail_call("read", "offload: ", array.name, ": the ", size, " bytes from byte ", start_ + at,
              " of ", file_->title(), " have hash ", found, ", expected ", block.hash,
              ", that of the bytes written; the disk may be defective");
  });
}

void DiskMemory::fail_request(const DiskRequest& request, int64_t offset) const {
  fail_call(request.writes ? "write" : "read", "offload: ", array_at(offset).name, ": ",
            request.bytes, " bytes from byte ", request.offset, " of ", file_->title(), ": ",
            std::strerror(request.error));
}

DiskMemory::Transfer::Transfer() = default;

DiskMemory::Transfer::Transfer(Transfer&& other) noexcept { *this = std::move(other); }

DiskMemory::Transfer& DiskMemory::Transfer::operator=(Transfer&& other) noexcept {
  wait_quietly();
  memory_ = std::exchange(other.memory_, {});
  requests_ = std::exchange(other.requests_, {});
  offset_ = other.offset_;
  bytes_ = other.bytes_;
  data_ = other.data_;
  return *this;
}

DiskMemory::Transfer::~Transfer() { wait_quietly(); }

/// The memory must not be used by the system when it is freed; another error is on its way.
void DiskMemory::Transfer::wait_quietly() noexcept {
  if (!memory_) return;
  for (const auto& request : requests_) memory_->file_->queue().wait(*request);
  requests_.clear();
  memory_ = {};
}

void DiskMemory::Transfer::wait() {
  if (!memory_) return;
  const std::shared_ptr<DiskMemory> memory = std::exchange(memory_, {});
  const auto requests = std::exchange(requests_, {});
  for (const auto& request : requests) memory->file_->queue().wait(*request);
  bool writes = false;
  for (const auto& request : requests) {
    writes = request->writes;
    const bool past_cache = request->file != memory->file_->buffered();
    if (request->error == EINVAL && past_cache) memory->file_->repeat(*request);
    if (request->error != 0) memory->fail_request(*request, offset_);
  }
  if (!writes) memory->check_hashes(offset_, bytes_, data_);
}

DiskBuffer::DiskBuffer(int64_t bytes, bool pinned) {
  const auto size = static_cast<size_t>(allocated(bytes));
  storage_ = pinned ? Storage::allocate_pinned(size) : Storage::allocate(size);
  const auto address = reinterpret_cast<uintptr_t>(storage_->data());
  offset_ = aligned(static_cast<int64_t>(address)) - static_cast<int64_t>(address);
}

int64_t DiskBuffer::allocated(int64_t bytes) { return aligned(bytes) + DiskMemory::kAlignment; }

}  // namespace weft
