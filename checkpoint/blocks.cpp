// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/blocks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>

#include "checkpoint/file_writer.h"
#include "weft/error.h"

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

void sync_directory(const std::string& path) {
  const OwnedDescriptor opened = opened_descriptor(path, O_RDONLY | O_DIRECTORY);
  if (opened.get() < 0) fail_call("open", "checkpoint: ", path, ": ", std::strerror(errno));
  if (TEMP_FAILURE_RETRY(::fsync(opened.get())) == 0) return;
  if (errno == EINVAL || errno == EOPNOTSUPP) return;  // the file system syncs no directories
  fail_call("fsync", "checkpoint: ", path, ": ", std::strerror(errno));
}

/// 0, or the errno that says why `path` is not a directory.
static int make_and_sync(const std::string& path) {
  if (TEMP_FAILURE_RETRY(::mkdir(path.c_str(), 0777)) == 0) {
    const auto parent = std::filesystem::path(path).parent_path().string();
    sync_directory(parent.empty() ? "." : parent);
    return 0;
  }
  const int reason = errno;
  struct stat status {};
  const bool exists = reason == EEXIST && ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) return 0;
  return exists ? ENOTDIR : reason;
}

void make_directory(const std::string& path) {
  if (is_object_path(path)) return;
  const int reason = make_and_sync(path);
  if (reason != 0) fail_call("mkdir", "checkpoint: ", path, ": ", std::strerror(reason));
}

void make_directories(const std::string& path) {
  if (is_object_path(path)) return;
  std::error_code unknown;
  const std::string parent = std::filesystem::path(path).parent_path().string();
  if (!parent.empty() && !std::filesystem::exists(parent, unknown) && !unknown) {
    make_directories(parent);
  }
  int reason = make_and_sync(path);
  if (reason == 0 && ::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return;
  if (reason == 0) reason = errno;
  for (const int of_path : {EACCES, EPERM, EROFS, ENOENT, ENOTDIR, ENAMETOOLONG, ELOOP}) {
    if (reason != of_path) continue;
    fail("checkpoint: ", path, " cannot be written: ", std::strerror(reason));
  }
  fail_call("mkdir", "checkpoint: ", path, ": ", std::strerror(reason));
}

void rename_to_new(const std::string& from, const std::string& to) {
  struct stat own {
  }, there{};
  const bool is_known = ::lstat(from.c_str(), &own) == 0;
  // A network file system repeats a call whose answer was lost. It then reports EEXIST, ENOENT or
  // ESTALE, though the file has its name.
  const auto is_done = [&](int failed) {
    const int reason = errno;
    const bool is_there = failed == 0 || (is_known && ::lstat(to.c_str(), &there) == 0 &&
                                          there.st_dev == own.st_dev && there.st_ino == own.st_ino);
    if (is_there) ::unlink(from.c_str());
    errno = reason;
    return is_there;
  };
  if (TEMP_FAILURE_RETRY(
          ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE)) == 0) {
    return;
  }
  if (is_done(-1)) return;
  // Some file systems do not support the flag; `link` also refuses to overwrite. Where there are no
  // links either (exFAT, some of FUSE), no other program makes a file of this name.
  const bool unknown = errno == EINVAL || errno == ENOSYS;
  if (unknown && is_done(::link(from.c_str(), to.c_str()))) return;
  const bool is_free = unknown && errno != EEXIST && ::lstat(to.c_str(), &there) != 0;
  if (is_free && (::rename(from.c_str(), to.c_str()) == 0 || is_done(-1))) return;
  fail_call("rename", "checkpoint: ", from, " to ", to, ": ", std::strerror(errno));
}

void check_can_rename(const std::string& directory) {
  if (is_object_path(directory)) return check_conditional_writes(directory);
  const std::string from = concat(directory, "/.rename-", drawn_tag()), to = from + ".done";
  if (opened_descriptor(from, O_WRONLY | O_CREAT | O_EXCL).get() < 0) {
    fail_call("open", "checkpoint: ", from, ": ", std::strerror(errno));
  }
  try {
    rename_to_new(from, to);
  } catch (...) {
    ::unlink(from.c_str());
    throw;
  }
  ::unlink(to.c_str());
}

WrittenFile::WrittenFile(std::string what, std::string path, int flags, bool past_cache)
    : what_(std::move(what)), path_(std::move(path)), is_past_cache_(past_cache) {
  open_standard_descriptors();
  flags |= O_WRONLY | O_NOFOLLOW;
  descriptor_ = opened_descriptor(path_, flags | (is_past_cache_ ? O_DIRECT : 0));
  if (descriptor_.get() < 0 && errno == EINVAL && std::exchange(is_past_cache_, false)) {
    descriptor_ = opened_descriptor(path_, flags);
  }
  if (descriptor_.get() < 0) fail_file("open");
}

void WrittenFile::fail_file(const char* call) const {
  fail_call(call, what_, ": ", path_, ": ", std::strerror(errno));
}

bool WrittenFile::reserve(int64_t bytes) const {
  return TEMP_FAILURE_RETRY(::fallocate(descriptor_.get(), 0, 0, bytes)) == 0;
}

void WrittenFile::use_cache() {
  if (!std::exchange(is_past_cache_, false)) return;
  const int flags = ::fcntl(descriptor_.get(), F_GETFL);
  if (flags < 0 || ::fcntl(descriptor_.get(), F_SETFL, flags & ~O_DIRECT) != 0) fail_file("fcntl");
}

void WrittenFile::write(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done =
        TEMP_FAILURE_RETRY(::pwrite(descriptor_.get(), bytes.data(), bytes.size(), offset));
    if (done < 0 && errno == EINVAL && is_past_cache_) {
      use_cache();
      continue;
    }
    if (done <= 0) {
      fail_call("pwrite", what_, ": ", path_, " at byte ", offset, ": ",
                done == 0 ? "nothing was written" : std::strerror(errno));
    }
    offset += done;
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
}

void WrittenFile::sync() const {
  if (TEMP_FAILURE_RETRY(::fsync(descriptor_.get())) != 0) fail_file("fsync");
}

FileWriter::FileWriter(const std::string& directory, const RankFiles& files, int rank)
    : files_(files),
      rank_(rank),
      file_(new_file(directory + "/" + file_name_of(rank, files.manifest().ranks),
                     files.data_start(rank), files.data_bytes(rank))),
      entries_(files.entries(rank)) {}

void FileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t room = static_cast<size_t>(kBlockBytes) - buffered_;
    const auto piece = bytes.first(std::min({size_t{kPieceBytes}, room, bytes.size()}));
    std::memcpy(buffer_.data() + buffered_, piece.data(), piece.size());
    hashes_.add({buffer_.data() + buffered_, piece.size()});
    count_non_finite({buffer_.data() + buffered_, piece.size()});
    buffered_ += piece.size();
    bytes = bytes.subspan(piece.size());
    if (buffered_ == static_cast<size_t>(kBlockBytes)) write_buffered();
  }
}

void FileWriter::write_buffered() {
  file_->write({buffer_.data(), buffered_});
  buffered_ = 0;
}

void FileWriter::finish() {
  const std::string header = files_.header(rank_, hashes_.finish(), non_finite_);
  write_buffered();
  file_->finish(std::as_bytes(std::span(header)));
  file_.reset();
}

/// Elements whose bits of the exponent are all ones. One pass that only looks for the largest
/// magnitude is as fast as the second-level cache; counting comes where it found something.
template <class Word>
static int64_t non_finite_in(std::span<const std::byte> bytes, Word exponent) {
  constexpr auto kMagnitude = static_cast<Word>(static_cast<Word>(~Word{0}) >> 1);
  const size_t count = bytes.size() / sizeof(Word);
  const auto magnitude = [&](size_t i) {
    Word word;
    std::memcpy(&word, bytes.data() + i * sizeof word, sizeof word);
    return static_cast<Word>(word & kMagnitude);
  };
  Word largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, magnitude(i));
  if (largest < exponent) return 0;
  int64_t found = 0;
  for (size_t i = 0; i < count; ++i) found += magnitude(i) >= exponent;
  return found;
}

static int64_t non_finite_in(std::span<const std::byte> bytes, DType dtype) {
  switch (dtype) {
    case DType::c128:
    case DType::f64: return non_finite_in<uint64_t>(bytes, 0x7ff0'0000'0000'0000);
    case DType::c64:
    case DType::f32: return non_finite_in<uint32_t>(bytes, 0x7f80'0000);
    case DType::bf16: return non_finite_in<uint16_t>(bytes, 0x7f80);
    case DType::f16: return non_finite_in<uint16_t>(bytes, 0x7c00);
    case DType::f8_e4m3: return non_finite_in<uint8_t>(bytes, 0x7f);
    case DType::f8_e5m2: return non_finite_in<uint8_t>(bytes, 0x7c);
    default: return 0;
  }
}

void FileWriter::count_non_finite(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto& [tensor, box, offset, size] = entries_[counted_entry_];
    if (counted_ == offset + size) {
      ++counted_entry_;
      continue;
    }
    const auto left = static_cast<size_t>(offset + size - counted_);
    const auto piece = bytes.first(std::min(left, bytes.size()));
    const int64_t count = non_finite_in(piece, files_.manifest().tensors[tensor].dtype);
    if (count > 0) non_finite_.add({count, static_cast<int64_t>(tensor)});
    counted_ += static_cast<int64_t>(piece.size());
    bytes = bytes.subspan(piece.size());
  }
}

}  // namespace weft
