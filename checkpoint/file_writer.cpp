// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/file_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "weft/error.h"

namespace weft {

/// Copied and hashed while it is in the cache.
static constexpr size_t kPiece = size_t{1} << 18;

void sync_directory(const std::string& path) {
  const OwnedDescriptor opened = opened_descriptor(path, O_RDONLY | O_DIRECTORY);
  if (opened.get() < 0) fail_call("open", "checkpoint: ", path, ": ", std::strerror(errno));
  if (TEMP_FAILURE_RETRY(::fsync(opened.get())) == 0) return;
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
  const int reason = make_and_sync(path);
  if (reason != 0) fail_call("mkdir", "checkpoint: ", path, ": ", std::strerror(reason));
}

void make_directories(const std::string& path) {
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
  const auto failed = TEMP_FAILURE_RETRY(
      ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE));
  if (failed == 0) return;
  // Some network file systems do not support the flag; `link` also refuses to overwrite.
  const bool unknown = errno == EINVAL || errno == ENOSYS;
  if (!unknown || ::link(from.c_str(), to.c_str()) != 0) {
    fail_call("rename", "checkpoint: ", from, " to ", to, ": ", std::strerror(errno));
  }
  ::unlink(from.c_str());
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
    : directory_(directory),
      path_(directory + "/" + file_name_of(rank, files.manifest().ranks)),
      temporary_(directory + "/." + file_name_of(rank, files.manifest().ranks) + ".tmp"),
      at_(files.data_start(rank)),
      finite_(files, rank) {
  struct stat status {};
  if (::lstat(path_.c_str(), &status) == 0) {
    fail("checkpoint: ", path_, " exists, expected no file; nothing is overwritten");
  }
  file_.emplace("checkpoint", temporary_, O_CREAT | O_TRUNC, true);
  const int64_t bytes = at_ + files.data_bytes(rank);
  // Tells at once that there is no space; file systems that cannot are left to write.
  if (file_->reserve(bytes) || errno == EOPNOTSUPP || errno == ENOSYS) return;
  const int reason = errno;
  file_.reset();
  ::unlink(temporary_.c_str());
  fail_call("fallocate", "checkpoint: ", temporary_, " of ", bytes,
            " bytes: ", std::strerror(reason));
}

FileWriter::~FileWriter() {
  if (!file_) return;
  file_.reset();
  ::unlink(temporary_.c_str());
}

void FileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t room = static_cast<size_t>(kBlockBytes) - buffered_;
    const auto piece = bytes.first(std::min({kPiece, room, bytes.size()}));
    std::memcpy(buffer_.data() + buffered_, piece.data(), piece.size());
    hashes_.add({buffer_.data() + buffered_, piece.size()});
    finite_.add({buffer_.data() + buffered_, piece.size()});
    buffered_ += piece.size();
    bytes = bytes.subspan(piece.size());
    if (buffered_ == static_cast<size_t>(kBlockBytes)) write_buffered();
  }
}

void FileWriter::write_buffered() {
  file_->write(at_, {buffer_.data(), buffered_});
  at_ += static_cast<int64_t>(buffered_);
  buffered_ = 0;
}

const std::vector<uint64_t>& FileWriter::block_hashes() { return hashes_.finish(); }

void FileWriter::finish(std::string_view header) {
  // The last block and the header are no whole sectors.
  file_->use_cache();
  write_buffered();
  file_->write(0, std::as_bytes(std::span(header)));
  file_->sync();
  rename_to_new(temporary_, path_);
  file_.reset();
  sync_directory(directory_);
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
    case DType::f64: return non_finite_in<uint64_t>(bytes, 0x7ff0'0000'0000'0000);
    case DType::f32: return non_finite_in<uint32_t>(bytes, 0x7f80'0000);
    case DType::bf16: return non_finite_in<uint16_t>(bytes, 0x7f80);
    case DType::f16: return non_finite_in<uint16_t>(bytes, 0x7c00);
    case DType::f8_e4m3: return non_finite_in<uint8_t>(bytes, 0x7f);
    case DType::f8_e5m2: return non_finite_in<uint8_t>(bytes, 0x7c);
    default: return 0;
  }
}

void FiniteCheck::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    while (entries_[current_].offset + entries_[current_].bytes == at_) ++current_;
    const auto& [tensor, box, offset, size] = entries_[current_];
    const auto left = static_cast<size_t>(offset + size - at_);
    const auto piece = bytes.first(std::min(left, bytes.size()));
    const int64_t count = non_finite_in(piece, manifest_.tensors[tensor].dtype);
    if (count > 0) found_.add({count, static_cast<int64_t>(tensor)});
    at_ += static_cast<int64_t>(piece.size());
    bytes = bytes.subspan(piece.size());
  }
}

}  // namespace weft
