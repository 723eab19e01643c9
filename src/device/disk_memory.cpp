// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/disk_memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "src/device/disk_queue.h"
#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/extend/hash.h"

namespace weft {

/// Bytes that the files of all ranks hold.
static std::atomic<int64_t> reserved_bytes = 0;

/// The bytes that the system can give to processes and the page cache, at most those of the control
/// group; 0 if they are unknown.
static int64_t available_bytes() {
  std::ifstream memory("/proc/meminfo");
  int64_t available = 0;
  for (std::string line; std::getline(memory, line);) {
    if (std::sscanf(line.c_str(), "MemAvailable: %" SCNd64, &available) == 1) break;
  }
  available *= 1024;
  std::ifstream group("/sys/fs/cgroup/memory.max");
  int64_t most = 0;
  return group >> most ? std::min(available, most) : available;
}

/// Warns once in a process of each cause, which `warned` counts.
static void warn_of_cache(std::atomic<bool>& warned, const std::string& why) {
  if (warned.exchange(true)) return;
  warn("offload: ", why, ", so that reads and writes pass through the page cache, which is slower");
}

/// The file of one rank in a directory: without a name, read and written by its process only.
class DiskFile : NotCopied {
 public:
  /// The calling thread's file in `directory`, made if it has none.
  static std::shared_ptr<DiskFile> in(const std::string& directory) {
    using Files = std::map<std::string, std::weak_ptr<DiskFile>>;
    static thread_local const auto files = std::make_unique<Files>();
    std::weak_ptr<DiskFile>& known = (*files)[directory];
    std::shared_ptr<DiskFile> file = known.lock();
    if (!file || !file->is_own()) known = file = std::make_shared<DiskFile>(directory);
    return file;
  }

  explicit DiskFile(std::string directory) : directory_(std::move(directory)) {
    open_standard_descriptors();
    std::string path = directory_ + "/.weft-offload-XXXXXX";
    // Readable and writable by the user only.
    buffered_ = OwnedDescriptor(above_standard(::mkostemp(path.data(), O_CLOEXEC)));
    if (buffered() < 0) {
      fail("offload: no file can be made in ", in_quotes(directory_), ": ", std::strerror(errno),
           ", expected a directory that can be written");
    }
    static std::atomic<bool> warned = false;
    const char* plain = std::getenv("WEFT_PLAIN_IO");
    const bool is_plain = plain && std::string_view(plain) == "1";
    if (!is_plain) direct_ = opened_descriptor(path, O_RDWR | O_DIRECT);
    const int reason = errno;
    ::unlink(path.c_str());
    if (is_plain) warn_of_cache(warned, "WEFT_PLAIN_IO is set");
    if (direct_.get() < 0 && !is_plain) warn_of_refusal(reason);
  }
  ~DiskFile() {
    // Waits for threads, which a child of fork does not have.
    if (!is_own()) static_cast<void>(queue_.release());
  }
  /// False in a child of fork.
  bool is_own() const { return ::getpid() == process_; }

  /// Reserves so many bytes at the end, and returns the first of them; std::runtime_error where the
  /// file system has too little space.
  int64_t reserve(int64_t bytes) {
    const int64_t offset = end_;
    if (bytes == 0) return offset;
    const int reason = ::posix_fallocate(buffered(), offset, bytes);
    if (reason != 0) {
      struct statvfs now {};
      const bool known = ::statvfs(directory_.c_str(), &now) == 0;
      const uint64_t free = known ? uint64_t{now.f_bavail} * now.f_frsize : 0;
      fail_call("fallocate", "offload: ", directory_, " has ", free, " bytes free, expected ",
                bytes, ": ", std::strerror(reason));
    }
    end_ += bytes;
    reserved_bytes += bytes;
    return offset;
  }

  /// Gives the space back.
  void release(int64_t offset, int64_t bytes) noexcept {
    if (bytes == 0 || !is_own()) return;
    reserved_bytes -= bytes;
    [[maybe_unused]] const int ignored =
        ::fallocate(buffered(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
  }

  /// "a file in DIR".
  std::string title() const { return concat("a file in ", directory_); }
  /// The descriptor for aligned memory, past the page cache where the file system supports it.
  int direct() const { return direct_.get() >= 0 && !refused_ ? direct_.get() : buffered(); }
  int buffered() const { return buffered_.get(); }
  DiskQueue& queue() const { return *queue_; }

  /// Performs a request that the file system refused past the page cache again, through it.
  void repeat(DiskRequest& request) {
    if (!std::exchange(refused_, true)) warn_of_refusal(request.error);
    request.file = buffered();
    request.moved = 0;
    request.error = 0;
    request.done = false;
    queue_->start(request);
    queue_->wait(request);
  }

 private:
  void warn_of_refusal(int reason) const {
    static std::atomic<bool> warned = false;
    warn_of_cache(warned,
                  concat(directory_, " does not support O_DIRECT (", std::strerror(reason), ')'));
  }

  std::string directory_;
  const pid_t process_ = ::getpid();
  OwnedDescriptor buffered_, direct_;
  /// Requests past the page cache fail.
  bool refused_ = false;
  int64_t end_ = 0;
  /// Last: it uses the descriptors.
  std::unique_ptr<DiskQueue> queue_ = std::make_unique<DiskQueue>();
};

/// Requests of at most 4 blocks keep several under way.
static constexpr int64_t kMostOfRequest = 4 * DiskMemory::kBlock;

std::shared_ptr<DiskMemory> DiskMemory::make(const std::string& directory,
                                             std::vector<Array> arrays, DiskPath path) {
  std::shared_ptr<DiskMemory> memory(
      new DiskMemory(DiskFile::in(directory), std::move(arrays), path));
  memory->storage_->stand_for(memory);
  return memory;
}

DiskMemory::DiskMemory(std::shared_ptr<DiskFile> file, std::vector<Array> arrays, DiskPath path)
    : file_(std::move(file)), cached_(path == DiskPath::cached) {
  size_t blocks = 0;
  for (Array& array : arrays) {
    arrays_.push_back({std::move(array.name), bytes_, array.bytes, blocks});
    blocks += static_cast<size_t>((array.bytes + kBlock - 1) / kBlock);
    bytes_ += next(array.bytes);
  }
  // First, because the hashes of arrays that do not fit may not fit into memory either.
  start_ = file_->reserve(bytes_);
  if (path == DiskPath::cached_if_it_fits) cached_ = reserved_bytes <= available_bytes() / 2;
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

DiskMemory::~DiskMemory() { file_->release(start_, bytes_); }

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
  if (!file_->is_own()) {
    fail_call(writes ? "write" : "read", "offload: ", array.name, ": this process is a child of ",
              "fork, expected the process that made the array");
  }
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

/// The memory must not be used by the system when it is freed: the last step waits.
struct DiskMemory::Transfer::Moving {
  std::shared_ptr<DiskMemory> memory;
  bool writes;
  int64_t offset, bytes;
  std::byte* data;
  std::deque<DiskRequest> requests = {};

  ~Moving() { await(); }
  void await() noexcept {
    if (!memory->file_->is_own()) return;  // a child of fork, which has no threads of the queue
    for (DiskRequest& request : requests) memory->file_->queue().wait(request);
  }
};

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
  transfer.moving_.reset(new Transfer::Moving{shared_from_this(), writes, offset, bytes, data});
  std::deque<DiskRequest>& requests = transfer.moving_->requests;
  const bool direct = is_padded && !cached_;
  const auto add = [&](int64_t at, int64_t size) {
    // Only the last request of an array is padded.
    const int64_t moved = direct ? next(size) : size;
    requests.push_back({direct ? file_->direct() : file_->buffered(), writes, start_ + at,
                        data + (at - offset), moved});
    file_->queue().start(requests.back());
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

void DiskMemory::Transfer::wait() {
  const std::shared_ptr<Moving> moving = std::move(moving_);
  if (!moving) return;
  moving->await();
  DiskMemory& memory = *moving->memory;
  for (DiskRequest& request : moving->requests) {
    const bool past_cache = request.file != memory.file_->buffered();
    if (request.error == EINVAL && past_cache) memory.file_->repeat(request);
    if (request.error != 0) memory.fail_request(request, moving->offset);
  }
  if (!moving->writes) memory.check_hashes(moving->offset, moving->bytes, moving->data);
}

DiskBuffer::DiskBuffer(int64_t bytes, bool pinned) {
  const auto size = static_cast<size_t>(allocated(bytes));
  storage_ = pinned ? Storage::allocate_pinned(size) : Storage::allocate(size);
  const auto address = reinterpret_cast<uintptr_t>(storage_->data());
  offset_ = DiskMemory::next(static_cast<int64_t>(address)) - static_cast<int64_t>(address);
}

int64_t DiskBuffer::allocated(int64_t bytes) {
  return DiskMemory::next(bytes) + DiskMemory::kAlignment;
}

}  // namespace weft
